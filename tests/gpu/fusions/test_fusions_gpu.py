# SPDX-License-Identifier: Apache-2.0
"""What only a GPU shows: sizes past 2 GiB, misalignment, streams, threads, Inductor's bits."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "overlay"))

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU in this machine"),
]
BF16 = torch.bfloat16
Tensor = torch.Tensor


def qkv(seq: int, batch: int, heads: int = 24, dim: int = 128) -> list[Tensor]:
    mixed = torch.randn(seq, batch, heads, 3 * dim, device="cuda", dtype=BF16)
    return [mixed, *(torch.rand(dim, device="cuda").to(BF16) + 0.5 for _ in range(2))]


def table(seq: int, dim: int = 128):  # type: ignore[no-untyped-def]
    from mxflux.fusions.rope_table import RopeTable

    angles = torch.rand(seq, 1, 1, dim // 2, device="cuda").repeat_interleave(2, -1)
    return RopeTable.from_angles(angles)


def test_tensors_past_two_gib_and_more_than_65535_programs() -> None:
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

    inputs, rope = qkv(512, 240), table(512)
    assert inputs[0].numel() * 2 > 2**31
    whole = norm_rope_qkv(*inputs, rope)
    tail = norm_rope_qkv(inputs[0][-2:], *inputs[1:], rope.slice(510, 512))
    assert all(torch.equal(a[-2:], b) for a, b in zip(whole, tail, strict=True))


def test_backward_past_two_gib() -> None:
    from mxflux.fusions.ln_modulate import ln_modulate

    x = torch.randn(1024, 400, 3072, device="cuda", dtype=BF16, requires_grad=True)
    scale, shift = (torch.randn(400, 3072, device="cuda", dtype=BF16) for _ in range(2))
    grad = torch.randn_like(x)
    (dx,) = torch.autograd.grad(ln_modulate(x, scale, shift), x, grad)
    tail = x[-2:].detach().requires_grad_()
    (want,) = torch.autograd.grad(ln_modulate(tail, scale, shift), tail, grad[-2:])
    assert torch.equal(dx[-2:], want)


@pytest.mark.parametrize("offset", [1, 3, 8])
def test_misaligned_pointers_give_the_same_bits(offset: int) -> None:
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

    inputs, rope = qkv(16, 2), table(16)
    buffer = torch.empty(inputs[0].numel() + offset, device="cuda", dtype=BF16)
    moved = buffer[offset:].view_as(inputs[0]).copy_(inputs[0])
    for _ in range(2):
        want = norm_rope_qkv(*inputs, rope)
        have = norm_rope_qkv(moved, *inputs[1:], rope)
        assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))


def test_inductor_gives_the_bits_of_eager() -> None:
    """Neighbours scale by powers of two and each weight has one use: Inductor keeps their sums and
    products in fp32 where eager rounds, and no other operation of this block could tell.
    """
    from mxflux.fusions.gate_residual import gate_residual_ln_modulate
    from mxflux.fusions.norm_rope import norm_rope
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

    rope = table(64)

    def block(
        x: Tensor, y: Tensor, modulation: Tensor, mixed: Tensor, *weights: Tensor
    ) -> list[Tensor]:
        shift, scale, gate = modulation.chunk(6, -1)[:3]
        h, out = gate_residual_ln_modulate(x, y, gate, scale, shift)
        q, k, v = norm_rope_qkv(mixed * 2, *weights[:2], rope)
        return [h, out, q, k, v, norm_rope((mixed * 4)[..., 128:256], weights[2], rope)]

    mixed, *weights = qkv(64, 3)
    weights.append(weights[0] + 0.25)
    x, y = (torch.randn(64, 3, 3072, device="cuda", dtype=BF16) for _ in range(2))
    inputs = [x, y, torch.randn(3, 6 * 3072, device="cuda", dtype=BF16), mixed, *weights]

    def run(function) -> list[Tensor]:  # type: ignore[no-untyped-def]
        leaves = [t.detach().requires_grad_() for t in inputs]
        outputs = function(*leaves)
        grads = [torch.full_like(o, 0.5) for o in outputs]
        return [*outputs, *torch.autograd.grad(outputs, leaves, grads)]

    eager, compiled = run(block), run(torch.compile(block, fullgraph=True))
    assert [
        i for i, (a, b) in enumerate(zip(eager, compiled, strict=True)) if not torch.equal(a, b)
    ] == []


def test_a_side_stream_orders_its_own_work() -> None:
    from mxflux.fusions.ln_modulate import ln_modulate

    x = torch.randn(512, 8, 3072, device="cuda", dtype=BF16)
    scale = torch.randn(8, 3072, device="cuda", dtype=BF16)
    want = ln_modulate(x, scale, scale)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = x * 1
        have = ln_modulate(late, scale, scale)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(have, want)


def test_graph_capture_replays_the_same_bits() -> None:
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

    inputs, rope = qkv(64, 2), table(64)
    want = norm_rope_qkv(*inputs, rope)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = norm_rope_qkv(*inputs, rope)
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(captured, want, strict=True))


def test_cold_threads_agree() -> None:
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

    inputs, rope = qkv(7, 5, 3, 64), table(7, 64)
    results: list[tuple[Tensor, ...]] = []
    group = [
        threading.Thread(target=lambda: results.append(norm_rope_qkv(*inputs, rope)))
        for _ in range(4)
    ]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, results[0], strict=True))


@pytest.mark.parametrize(
    ("op", "seq", "batch"),
    [
        ("norm_rope_backward", 4608, 1),
        ("qkv_backward", 64, 3),
        ("ln_modulate_backward", 512, 8),
        ("gate_residual_backward", 77, 3),
    ],
)
def test_a_sum_launched_early_waits_for_its_partials(
    op: str, seq: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programmatic dependent launch against plain launches in order: the same bits, every time."""
    from mxflux.fusions import catalog, tables

    arch = tables.architecture(torch.device("cuda", 0))
    if not tables.dependent_launches(arch):
        pytest.skip(f"{arch} has no programmatic dependent launch")
    config = tables.configuration(arch, op, *catalog.table_rows(op, seq, batch))
    torch.manual_seed(0)
    early = catalog.Factory(arch, "cuda").calls(op, seq, batch, config)
    monkeypatch.setattr(tables, "dependent_launches", lambda _: False)
    torch.manual_seed(0)
    plain = catalog.Factory(arch, "cuda").calls(op, seq, batch, config)
    assert early[1].launch.dependent
    assert not plain[1].launch.dependent
    for call in plain:
        call()
    want = [t.clone() for t in plain[1].pointers[1:]]
    partials = early[1].pointers[0]
    for _ in range(50):
        partials.fill_(float("nan"))
        for call in early:
            call()
        assert all(torch.equal(a, b) for a, b in zip(early[1].pointers[1:], want, strict=True))


def test_graph_capture_of_a_backward_replays_the_same_bits() -> None:
    from mxflux.fusions.ln_modulate import ln_modulate

    x = torch.randn(128, 4, 3072, device="cuda", dtype=BF16)
    scale, shift = (torch.randn(4, 3072, device="cuda", dtype=BF16) for _ in range(2))
    leaves = [t.requires_grad_() for t in (x, scale, shift)]
    grad = torch.randn_like(x)

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(ln_modulate(*leaves), leaves, grad)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        want = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(captured, want, strict=True))
