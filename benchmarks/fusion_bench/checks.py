# SPDX-License-Identifier: Apache-2.0
"""What has to hold before anything is timed."""

from __future__ import annotations

from typing import Any

import torch

from fusion_bench.ops import Op
from fusion_bench.peers import Peer

Tensor = torch.Tensor


def results_of(
    run: Any, inputs: list[Tensor], table: Any, grads: list[Tensor] | None = None
) -> list[Tensor]:
    """Outputs, then gradients of the inputs."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    outputs = run(*leaves, table)
    grads = grads or [torch.ones_like(o) for o in outputs]
    found = torch.autograd.grad(
        outputs, leaves, [g.to(o.dtype) for g, o in zip(grads, outputs, strict=True)]
    )
    return [*(o.detach() for o in outputs), *found]


def rms(x: Tensor, truth: Tensor) -> float:
    """Root mean square error in fp64."""
    return float((x.double() - truth).square().mean().sqrt())


def check(op: Op, seq: int, batch: int) -> list[str]:
    """What is wrong with the op at one shape: accuracy against the bf16 chain, bits from run to run
    and op to op.
    """
    torch.manual_seed(seq)
    inputs, table = op.inputs(seq, batch)
    outputs = op.run(*inputs, table)
    grads = [torch.randn_like(o) for o in outputs]
    fused = results_of(op.run, inputs, table, grads)
    again = results_of(op.run, inputs, table, grads)
    opaque = results_of(op.registered, inputs, table, grads)
    unfused = results_of(op.chain, inputs, table, grads)
    exact = results_of(op.chain, [t.double() for t in inputs], table, [g.double() for g in grads])
    problems = []
    for index, (ours, theirs, truth) in enumerate(zip(fused, unfused, exact, strict=True)):
        if not rms(ours, truth) <= rms(theirs, truth):
            ours_off, theirs_off = rms(ours, truth), rms(theirs, truth)
            problems.append(
                f"tensor {index}: error {ours_off:.3e} above the chain's {theirs_off:.3e}"
            )
        if not torch.equal(ours, again[index]):
            problems.append(f"tensor {index}: two runs differ")
        if not torch.equal(ours, opaque[index]):
            problems.append(f"tensor {index}: the registered op differs")
    return [f"{op.name} {seq}x{batch}: {problem}" for problem in problems]


def check_peer(op: Op, peer: Peer, seq: int, batch: int) -> list[str]:
    """Whether a peer computes the same as the chain: its error against fp64 is at most twice the
    bf16 chain's.
    """
    torch.manual_seed(seq)
    inputs, table = op.inputs(seq, batch)
    grads = [torch.randn_like(o) for o in op.run(*inputs, table)]
    # clones: Liger's RoPE writes gradients in place
    theirs = results_of(peer.run, inputs, table, [g.clone() for g in grads])
    unfused = results_of(op.chain, inputs, table, grads)
    exact = results_of(op.chain, [t.double() for t in inputs], table, [g.double() for g in grads])
    return [
        f"{op.name} {seq}x{batch}: {peer.name}: tensor {i}: error {rms(a, truth):.3e}, the chain's "
        f"{rms(b, truth):.3e}"
        for i, (a, b, truth) in enumerate(zip(theirs, unfused, exact, strict=True))
        if not rms(a, truth) <= 2 * rms(b, truth)
    ]


def check_compiled(op: Op, seq: int, batch: int) -> list[str]:
    """Whether torch.compile of the fused op gives the bits of eager."""
    inputs, table = op.inputs(seq, batch)
    eager = results_of(op.run, inputs, table)
    try:
        compiled = results_of(torch.compile(op.run, fullgraph=True, dynamic=False), inputs, table)
    except RuntimeError as error:  # a compiler's failure is a finding; the times are still wanted
        return [f"{op.name} {seq}x{batch}: torch.compile of the op: {first_line(error)}"]
    return [
        f"{op.name} {seq}x{batch}: tensor {i}: compiled differs from eager"
        for i, (a, b) in enumerate(zip(eager, compiled, strict=True))
        if not torch.equal(a, b)
    ]


def first_line(error: Exception) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
