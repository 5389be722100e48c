# SPDX-License-Identifier: Apache-2.0
"""The registered ops: opcheck, one opaque node in graphs, no wrapped launch in eager."""

from __future__ import annotations

from collections import Counter
from typing import Any

import fusions_support as support
import pytest
import torch
from functorch.compile import make_boxed_func
from fusions_support import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._higher_order_ops import triton_kernel_wrap
from torch.library import opcheck

from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

OPS = torch.ops.mxflux


def rope_arguments(strided: bool = False) -> list[Tensor]:
    mixed = support.values("random", 3, 2, 2, 48).float()
    if strided:
        mixed = mixed.transpose(0, 1).contiguous().transpose(0, 1)
    weights = [torch.rand(16) + 0.5 for _ in range(2)]
    return [t.requires_grad_() for t in (mixed, *weights)]


def ln_arguments(count: int) -> list[Tensor]:
    hidden = [torch.randn(4, 2, 32) for _ in range(count)]
    return [
        t.detach().requires_grad_()
        for t in (*hidden, *torch.randn(2, 192).chunk(6, -1)[: count + 1])
    ]


@pytest.mark.parametrize("strided", [False, True])
def test_opcheck_norm_rope_qkv(strided: bool) -> None:
    table = support.table(3, 2, 16).cos_sin
    opcheck(OPS.norm_rope_qkv.default, (*rope_arguments(strided), table, 1e-6))


def test_opcheck_ln_ops() -> None:
    opcheck(OPS.ln_modulate_opaque.default, (*ln_arguments(1), 1e-6))
    opcheck(OPS.gate_residual_ln_modulate_opaque.default, (*ln_arguments(2), 1e-6))


@pytest.mark.parametrize("name", ["norm_rope", "ln_modulate", "gate_residual_ln_modulate"])
def test_opcheck_of_the_traceable_ops_without_tracing(name: str) -> None:
    """The interpreter cannot run on fake tensors (facts, section 9): schema and autograd
    registration only.
    """
    arguments: tuple[Any, ...] = (*ln_arguments(2 if name.startswith("gate") else 1), 1e-6)
    if name == "norm_rope":
        mixed, weight, _ = rope_arguments()
        arguments = (mixed[..., :16], weight, support.table(3, 1, 16).cos_sin, 1e-6)
    utilities = ("test_schema", "test_autograd_registration")
    opcheck(getattr(OPS, name).default, arguments, test_utils=utilities)


def compiled_graphs(run: Any, inputs: list[Tensor]) -> tuple[list[Tensor], list[Counter[str]]]:
    """Outputs and gradients of the compiled function, and the ops of its forward and backward
    graphs.
    """
    graphs: list[Counter[str]] = []

    def note(module: torch.fx.GraphModule, _: Any) -> Any:
        names = (str(n.target) for n in module.graph.nodes if n.op == "call_function")
        graphs.append(Counter(names))
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    compiled = torch.compile(run, backend=aot_autograd(fw_compiler=note), fullgraph=True)
    outputs = compiled(*inputs)
    found = torch.autograd.grad([o.square().sum() for o in outputs], inputs)
    return [*(o.detach() for o in outputs), *found], graphs


def test_whole_qkv_is_one_opaque_node_each_way_with_eager_bits() -> None:
    inputs, table = rope_arguments(), support.table(3, 1, 16)

    def run(*a: Tensor) -> tuple[Tensor, ...]:
        return norm_rope_qkv(*a, table)

    have, (forward, backward) = compiled_graphs(run, inputs)
    assert forward["mxflux.norm_rope_qkv.default"] == 1
    assert backward["mxflux.norm_rope_qkv_backward.default"] == 1
    assert not any(
        "clone" in name or "copy" in name or "cat" in name for name in forward + backward
    )
    outputs = run(*inputs)
    found = torch.autograd.grad([o.square().sum() for o in outputs], inputs)
    assert support.equal(have, [*(o.detach() for o in outputs), *found])


def test_opaque_ln_ops_are_one_node_each_way() -> None:
    for run, count, name in (
        (lambda *a: (ln_modulate(*a, opaque=True),), 1, "ln_modulate_opaque"),
        (
            lambda *a: gate_residual_ln_modulate(*a, opaque=True),
            2,
            "gate_residual_ln_modulate_opaque",
        ),
    ):
        _, (forward, backward) = compiled_graphs(run, ln_arguments(count))
        assert forward[f"mxflux.{name}.default"] == 1
        assert backward[f"mxflux.{name}_backward.default"] == 1


def test_eager_never_launches_through_the_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("wrapped launch in eager")

    monkeypatch.setattr(triton_kernel_wrap.TritonKernelWrapperMutation, "__call__", refuse)
    inputs, table = rope_arguments(), support.table(3, 1, 16)
    results = [*norm_rope_qkv(*inputs, table), *OPS.norm_rope_qkv(*inputs, table.cos_sin, 1e-6)[:3]]
    q = inputs[0][..., :16]
    results += [norm_rope(q, inputs[1], table), OPS.norm_rope(q, inputs[1], table.cos_sin, 1e-6)[0]]
    results += [OPS.ln_modulate(*ln_arguments(1), 1e-6)[0]]
    sum(r.sum() for r in results).backward()
    assert inputs[0].grad is not None


def test_double_backward_is_refused() -> None:
    mixed, *weights = rope_arguments()
    q, _, _ = norm_rope_qkv(mixed, *weights, support.table(3, 1, 16))
    (grad,) = torch.autograd.grad(q.square().sum(), mixed, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_tensor_subclasses_and_modes_reach_the_registered_op() -> None:
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[str] = set()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.add(str(func))
            return func(*args, **(kwargs or {}))

    with Mode() as mode, torch.no_grad():
        norm_rope_qkv(*rope_arguments(), support.table(3, 1, 16))
    assert "mxflux.norm_rope_qkv.default" in mode.seen


def test_checkpointed_block_has_the_same_gradients() -> None:
    inputs, table = rope_arguments(), support.table(3, 1, 16)
    run = lambda *a: sum(o.square().sum() for o in norm_rope_qkv(*a, table))  # noqa: E731
    want = torch.autograd.grad(run(*inputs), inputs)
    loss = torch.utils.checkpoint.checkpoint(run, *inputs, use_reentrant=False)
    assert support.equal(torch.autograd.grad(loss, inputs), want)
