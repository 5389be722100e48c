# SPDX-License-Identifier: Apache-2.0
"""LN-modulate and gated residual: accuracy against the chain, layouts, edges, bits."""

from __future__ import annotations

import fusions_support as support
import pytest
import torch
from fusions_support import BF16, KINDS, Tensor

from mxflux.fusions import reference
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate

F32, F64 = torch.float32, torch.float64
SHAPES = [(1, 1, 64), (129, 1, 64), (3, 3, 3072), (17, 2, 100), (5, 4, 1), (33, 2, 192)]


def case(seq: int, batch: int, width: int, kind: str, dtype: torch.dtype = BF16) -> list[Tensor]:
    """x, y, gate, scale, shift."""
    x = support.values(kind, seq, batch, width)
    y = support.values("random", seq, batch, width, seed=1)
    return [x, y, *(support.values("random", batch, width, dtype=dtype, seed=i) for i in (2, 3, 4))]


def incoming(seq: int, batch: int, width: int) -> list[Tensor]:
    return [support.values("random", seq, batch, width, seed=i) for i in (5, 6)]


def results(run, inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    outputs, found = support.gradients(run, [support.leaf(t) for t in inputs], grads)
    return [*outputs, *found]


def plain(run):
    return lambda x, scale, shift: [run(x, scale, shift)]


def pick(inputs: list[Tensor]) -> list[Tensor]:
    return [inputs[0], *inputs[3:]]


def doubled(tensors: list[Tensor]) -> list[Tensor]:
    return [t.double() for t in tensors]


@pytest.mark.parametrize("kind", KINDS)
def test_ln_modulate_error_is_no_larger_than_the_unfused_chain(kind: str) -> None:
    inputs, grads = pick(case(33, 2, 192, kind)), incoming(33, 2, 192)[:1]
    fused = results(plain(ln_modulate), inputs, grads)
    unfused = results(plain(reference.ln_modulate), inputs, grads)
    truth = results(plain(reference.ln_modulate), doubled(inputs), doubled(grads))
    for ours, theirs, exact in zip(fused, unfused, truth, strict=True):
        assert support.error(ours, exact) <= support.error(theirs, exact)


@pytest.mark.parametrize("kind", KINDS)
def test_gate_residual_error_is_no_larger_than_the_unfused_chain(kind: str) -> None:
    inputs, grads = case(33, 2, 192, kind), incoming(33, 2, 192)
    fused = results(gate_residual_ln_modulate, inputs, grads)
    unfused = results(reference.gate_residual_ln_modulate, inputs, grads)
    truth = results(reference.gate_residual_ln_modulate, doubled(inputs), doubled(grads))
    for ours, theirs, exact in zip(fused, unfused, truth, strict=True):
        assert support.error(ours, exact) <= support.error(theirs, exact)


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_shapes_and_modulation_dtypes_against_fp64(
    sizes: tuple[int, ...], dtype: torch.dtype
) -> None:
    inputs, grads = pick(case(*sizes, "random", dtype)), incoming(*sizes)[:1]
    fused = results(plain(ln_modulate), inputs, grads)
    truth = results(plain(reference.ln_modulate), doubled(inputs), doubled(grads))
    assert [t.dtype for t in fused] == [BF16, BF16, dtype, dtype]
    for ours, exact in zip(fused, truth, strict=True):
        bound = (
            exact.abs() * (2.0**-8 if ours.dtype == BF16 else 1e-5)
            + 2e-5 * exact.abs().max()
            + 1e-30
        )
        assert ((ours.double() - exact).abs() <= bound).all()


def test_gated_output_has_the_bits_of_the_two_steps() -> None:
    inputs = case(17, 3, 100, "random")
    h, out = gate_residual_ln_modulate(*inputs)
    assert support.equal([out], [ln_modulate(h, *inputs[3:])])
    x, y, gate = (t.double() for t in inputs[:3])
    assert support.equal([h], [(x + gate * y).to(BF16)])


def test_modulation_chunks_are_read_in_place() -> None:
    x = support.values("random", 5, 3, 64)
    wide = support.guarded(support.values("random", 3, 6 * 64))
    shift, scale, gate = wide.chunk(6, dim=-1)[:3]
    copies = [t.contiguous() for t in (gate, scale, shift)]
    assert support.equal([ln_modulate(x, scale, shift)], [ln_modulate(x, *copies[1:])])
    want = gate_residual_ln_modulate(x, x, *copies)
    assert support.equal(gate_residual_ln_modulate(x, x, gate, scale, shift), want)


@pytest.mark.parametrize("layout", ["gaps", "batch first", "inner stride 2", "later rows"])
def test_any_layout_gives_the_same_bits(layout: str) -> None:
    def lay(x: Tensor) -> Tensor:
        spread = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
        spread[..., ::2] = x
        return {
            "gaps": lambda: support.guarded(x),
            "batch first": lambda: x.transpose(0, 1).contiguous().transpose(0, 1),
            "inner stride 2": lambda: spread[..., ::2],
            "later rows": lambda: torch.cat([torch.full_like(x, float("nan")), x])[len(x) :],
        }[layout]()

    inputs, grads = case(9, 2, 96, "random"), incoming(9, 2, 96)
    want = results(gate_residual_ln_modulate, inputs, grads)
    leaves = [lay(t).detach().requires_grad_() for t in inputs[:2]] + list(
        map(support.leaf, inputs[2:])
    )
    outputs, found = support.gradients(gate_residual_ln_modulate, leaves, [lay(g) for g in grads])
    assert support.equal([*outputs, *found], want)


def test_expanded_and_missing_gradients() -> None:
    inputs = case(9, 2, 64, "random")

    def run(reduce) -> list[Tensor]:
        leaves = [support.leaf(t) for t in inputs]
        loss = reduce(*gate_residual_ln_modulate(*leaves))
        return list(torch.autograd.grad(loss, leaves, materialize_grads=True))

    def explicit(dh: float, g: float) -> list[Tensor]:
        full = [torch.full((9, 2, 64), v, dtype=BF16) for v in (dh, g)]
        return results(gate_residual_ln_modulate, inputs, full)[2:]

    assert support.equal(run(lambda h, out: h.sum() + out.sum()), explicit(1, 1))
    assert support.equal(run(lambda h, out: out.sum()), explicit(0, 1))
    assert support.equal(run(lambda h, out: h.sum()), explicit(1, 0))


@pytest.mark.parametrize("sizes", [(0, 2, 64), (4, 0, 64)])
def test_empty_inputs(sizes: tuple[int, ...]) -> None:
    inputs = [t.requires_grad_() for t in case(*sizes, "random")]
    h, out = gate_residual_ln_modulate(*inputs)
    assert h.shape == out.shape == sizes
    found = torch.autograd.grad(h.sum() + out.sum(), inputs)
    assert not any(g.any() for g in found)


def test_zero_variance_rows_are_finite() -> None:
    x = torch.full((4, 2, 64), 3.0, dtype=BF16, requires_grad=True)
    scale = shift = torch.ones(2, 64, dtype=BF16)
    out = ln_modulate(x, scale, shift)
    assert torch.equal(out, torch.ones_like(out))
    (dx,) = torch.autograd.grad(out.sum(), x)
    assert dx.isfinite().all()


def test_gradcheck_in_fp64() -> None:
    inputs = [torch.randn(5, 2, 12, dtype=F64, requires_grad=True) for _ in range(2)]
    inputs += [torch.randn(2, 12, dtype=F64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(gate_residual_ln_modulate, inputs, fast_mode=True)
    assert torch.autograd.gradcheck(ln_modulate, [inputs[0], *inputs[3:]], fast_mode=True)


def test_two_runs_and_all_entries_give_the_same_bits() -> None:
    inputs, grads = case(30, 2, 64, "random"), incoming(30, 2, 64)
    ops = torch.ops.mxflux
    first = results(gate_residual_ln_modulate, inputs, grads)
    for op in (ops.gate_residual_ln_modulate, ops.gate_residual_ln_modulate_opaque):
        assert support.equal(results(lambda *a, op=op: op(*a, 1e-6)[:2], inputs, grads), first)
    first = results(plain(ln_modulate), pick(inputs), grads[:1])
    for op in (ops.ln_modulate, ops.ln_modulate_opaque):
        again = results(lambda *a, op=op: op(*a, 1e-6)[:1], pick(inputs), grads[:1])
        assert support.equal(again, first)
    assert support.equal(results(plain(ln_modulate), pick(inputs), grads[:1]), first)
