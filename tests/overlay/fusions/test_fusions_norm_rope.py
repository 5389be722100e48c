# SPDX-License-Identifier: Apache-2.0
"""Norm + RoPE per tensor and whole QKV: accuracy against the chain, layouts, bits."""

from __future__ import annotations

import fusions_support as support
import pytest
import torch
from fusions_support import BF16, KINDS, Tensor

from mxflux.fusions import reference
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv

F32, F64 = torch.float32, torch.float64
SHAPES = [
    (1, 3, 1, 16),
    (3, 1, 24, 128),
    (65, 1, 1, 32),
    (7, 2, 3, 96),
    (5, 3, 2, 256),
    (33, 2, 3, 48),
]


def qkv_case(
    seq: int, batch: int, heads: int, dim: int, kind: str, dtype: torch.dtype
) -> list[Tensor]:
    mixed = support.values(kind, seq, batch, heads, 3 * dim, dtype=dtype)
    return [mixed, *(support.values("random", dim, dtype=dtype, seed=i) for i in (1, 2))]


def grads_for(seq: int, batch: int, heads: int, dim: int) -> list[Tensor]:
    return [support.values("random", seq, batch, heads, dim, seed=10 + i) for i in range(3)]


def three_way(
    inputs: list[Tensor], table: support.RopeTable, grads: list[Tensor]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Outputs then gradients: fused, unfused in the same dtype, unfused in fp64."""

    def results(run, inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        outputs, found = support.gradients(run, [support.leaf(t) for t in inputs], grads)
        return [*outputs, *found]

    wide = [t.double() for t in inputs]
    return (
        results(lambda *a: norm_rope_qkv(*a, table), inputs, grads),
        results(lambda *a: reference.norm_rope_qkv(*a, table.cos_sin), inputs, grads),
        results(
            lambda *a: reference.norm_rope_qkv(*a, table.cos_sin.double()),
            wide,
            [g.double() for g in grads],
        ),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_error_is_no_larger_than_the_unfused_chain(kind: str) -> None:
    inputs, grads = qkv_case(33, 2, 3, 128, kind, BF16), grads_for(33, 2, 3, 128)
    fused, unfused, truth = three_way(inputs, support.table(33, 2, 128), grads)
    for ours, theirs, exact in zip(fused, unfused, truth, strict=True):
        assert support.error(ours, exact) <= support.error(theirs, exact)


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("per_sample", [False, True])
def test_every_element_is_within_half_a_step_of_fp64(
    sizes: tuple[int, ...], per_sample: bool
) -> None:
    seq, batch, _, dim = sizes
    inputs = qkv_case(*sizes, "random", BF16)
    table = support.table(seq, batch if per_sample else 1, dim)
    fused, _, truth = three_way(inputs, table, grads_for(*sizes))
    for ours, exact in zip(fused, truth, strict=True):
        step = torch.nextafter(exact.to(BF16).abs(), torch.tensor(float("inf"), dtype=BF16))
        step = step.double() - exact.to(BF16).abs().double()
        assert ((ours.double() - exact).abs() <= 0.51 * step + 1e-5).all()


def test_v_is_bit_exact_both_ways_even_for_nan_payloads() -> None:
    dim = 32
    mixed = support.values("random", 4, 2, 3, 3 * dim)
    bits = torch.randint(-(2**15), 2**15, (4, 2, 3, dim), dtype=torch.int16)
    mixed[..., 2 * dim :] = bits.view(BF16)
    mixed.requires_grad_()
    ones = torch.ones(dim, dtype=BF16)
    v = norm_rope_qkv(mixed, ones, ones, support.table(4, 1, dim))[2]
    assert support.equal([v], [mixed.detach()[..., 2 * dim :]])
    dv = torch.randint(-(2**15), 2**15, v.shape, dtype=torch.int16).view(BF16)
    (dmixed,) = torch.autograd.grad(v, mixed, dv)
    assert support.equal([dmixed[..., 2 * dim :]], [dv])


def test_slices_are_read_in_place_and_equal_the_whole() -> None:
    mixed, q_weight, k_weight = qkv_case(9, 2, 3, 32, "random", BF16)
    table = support.table(9, 1, 32)
    q, k, _ = norm_rope_qkv(mixed, q_weight, k_weight, table)
    q_slice, k_slice, _ = mixed.chunk(3, dim=-1)
    assert support.equal([norm_rope(q_slice, q_weight, table)], [q])
    assert support.equal([norm_rope(k_slice, k_weight, table)], [k])


def layouts(x: Tensor) -> dict[str, Tensor]:
    """The same values in every layout a producer may hand over."""
    every_second = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
    every_second[..., ::2] = x
    return {
        "gaps": support.guarded(x),
        "batch first": x.transpose(0, 1).contiguous().transpose(0, 1),
        "heads first": x.transpose(1, 2).contiguous().transpose(1, 2),
        "inner stride 2": every_second[..., ::2],
    }


@pytest.mark.parametrize("layout", ["gaps", "batch first", "heads first", "inner stride 2"])
def test_any_layout_gives_the_same_bits(layout: str) -> None:
    inputs, grads = qkv_case(5, 2, 3, 48, "random", BF16), grads_for(5, 2, 3, 48)
    table = support.table(5, 2, 48)

    def run(mixed: Tensor, grads: list[Tensor]) -> list[Tensor]:
        leaves = [mixed.detach().requires_grad_(), *map(support.leaf, inputs[1:])]
        outputs, found = support.gradients(lambda *a: norm_rope_qkv(*a, table), leaves, grads)
        return [*outputs, *found]

    want = run(inputs[0], grads)
    have = run(layouts(inputs[0])[layout], [layouts(g)[layout] for g in grads])
    assert support.equal(have, want)


def test_expanded_and_missing_gradients() -> None:
    inputs, table = qkv_case(5, 2, 3, 32, "random", BF16), support.table(5, 1, 32)

    def run(reduce) -> list[Tensor]:
        leaves = [support.leaf(t) for t in inputs]
        return list(torch.autograd.grad(reduce(*norm_rope_qkv(*leaves, table)), leaves))

    full = torch.ones(5, 2, 3, 32, dtype=BF16)
    leaves = [support.leaf(t) for t in inputs]
    want = torch.autograd.grad(list(norm_rope_qkv(*leaves, table)), leaves, [full] * 3)
    assert support.equal(run(lambda q, k, v: q.sum() + k.sum() + v.sum()), want)
    zero = torch.zeros_like(full)
    leaves = [support.leaf(t) for t in inputs]
    want = torch.autograd.grad(list(norm_rope_qkv(*leaves, table)), leaves, [zero, full, zero])
    assert support.equal(run(lambda q, k, v: k.sum()), want)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_norm_weights_in_fp32_or_in_the_dtype_of_x(dtype: torch.dtype) -> None:
    mixed = support.values("random", 4, 2, 2, 96)
    weights = [support.values("random", 32, dtype=dtype, seed=i).requires_grad_() for i in (1, 2)]
    q, k, _ = norm_rope_qkv(mixed, *weights, support.table(4, 1, 32))
    found = torch.autograd.grad(q.sum() + k.sum(), weights)
    assert q.dtype == k.dtype == BF16
    assert [g.dtype for g in found] == [dtype, dtype]


@pytest.mark.parametrize("sizes", [(0, 2, 3, 32), (4, 0, 3, 32), (4, 2, 0, 32)])
def test_empty_inputs(sizes: tuple[int, ...]) -> None:
    seq, batch, heads, dim = sizes
    mixed = torch.empty(seq, batch, heads, 3 * dim, dtype=BF16, requires_grad=True)
    weights = [torch.ones(dim, dtype=BF16, requires_grad=True) for _ in range(2)]
    outputs = norm_rope_qkv(mixed, *weights, support.table(seq, 1, dim))
    assert [tuple(o.shape) for o in outputs] == [sizes] * 3
    found = torch.autograd.grad(sum(o.sum() for o in outputs), [mixed, *weights])
    assert found[0].shape == mixed.shape
    assert not found[1].any()
    assert not found[2].any()


def test_gradcheck_in_fp64() -> None:
    table = support.table(3, 2, 16, dtype=F64)
    mixed = torch.randn(3, 2, 2, 48, dtype=F64, requires_grad=True)
    weights = [torch.randn(16, dtype=F64, requires_grad=True) for _ in range(2)]
    run = lambda *a: norm_rope_qkv(*a, table)  # noqa: E731
    assert torch.autograd.gradcheck(run, (mixed, *weights), fast_mode=True)
    x = torch.randn(3, 2, 2, 16, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *a: norm_rope(*a, table), (x, weights[0]), fast_mode=True
    )


def test_joint_streams_equal_the_unsliced_path() -> None:
    mixed, q_weight, k_weight = qkv_case(11, 2, 3, 32, "random", BF16)
    table = support.table(11, 2, 32)
    whole = norm_rope_qkv(mixed, q_weight, k_weight, table)
    text, image = table.split(4)
    parts = [
        norm_rope_qkv(rows, q_weight, k_weight, part)
        for rows, part in ((mixed[:4], text), (mixed[4:], image))
    ]
    assert support.equal([torch.cat(pair) for pair in zip(*parts, strict=True)], whole)


def test_two_runs_and_all_entries_give_the_same_bits() -> None:
    inputs, grads = qkv_case(20, 2, 3, 32, "random", BF16), grads_for(20, 2, 3, 32)
    table = support.table(20, 1, 32)
    op = torch.ops.mxflux.norm_rope_qkv

    def results(run) -> list[Tensor]:
        outputs, found = support.gradients(run, [support.leaf(t) for t in inputs], grads)
        return [*outputs, *found]

    first = results(lambda *a: norm_rope_qkv(*a, table))
    assert support.equal(results(lambda *a: norm_rope_qkv(*a, table)), first)
    assert support.equal(results(lambda *a: op(*a, table.cos_sin, 1e-6)[:3]), first)
    q = inputs[0][..., :32]
    single = torch.ops.mxflux.norm_rope(q, inputs[1], table.cos_sin, 1e-6)[0]
    assert support.equal([single], first[:1])
    assert support.equal([norm_rope(q, inputs[1], table)], first[:1])


def test_no_grad_records_nothing() -> None:
    inputs = [support.leaf(t) for t in qkv_case(3, 1, 1, 32, "random", BF16)]
    with torch.no_grad():
        outputs = norm_rope_qkv(*inputs, support.table(3, 1, 32))
    assert not any(o.requires_grad for o in outputs)
