# SPDX-License-Identifier: Apache-2.0
"""mx_linear and MXLinear: the three GEMMs, packing by need, checkpointing, compile, main_grad."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from mxflux.mx import (
    MissingOperandError,
    MXUnavailableError,
    MXValueError,
    QuantSpec,
    census,
    gemm,
    quantize_columns,
    quantize_rows,
    rng_state,
)
from mxflux.mx.linear import MXLinear, _MXLinearFunction, mx_linear
from mxflux.mx.plans import PLANS, LinearPlan, mxfp4, mxfp6, mxfp8

#: torch's Dynamo makes an instance of every autograd Function it traces and warns itself about it.
dynamo = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

ALL = {
    "mxfp4": mxfp4(),
    "mxfp4 fp8": mxfp4(backward="fp8"),
    "mxfp4 bf16": mxfp4(backward="bf16"),
    "mxfp6": mxfp6(),
    "mxfp6 e3m2": mxfp6(element="e3m2"),
    "mxfp8": mxfp8(gradient="e5m2"),
}
LIMITS = {"mxfp4": 0.25, "mxfp6": 0.1, "mxfp8": 0.1}


def tensors(
    tokens: tuple[int, ...] = (3, 20), k: int = 96, n: int = 64, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(*tokens, k, generator=g).to(dtype).requires_grad_()
    w = (torch.randn(n, k, generator=g) / 8).to(dtype).requires_grad_()
    b = torch.randn(n, generator=g).to(dtype).requires_grad_()
    return x, w, b, torch.randn(*tokens, n, generator=g).to(dtype)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.double() - exact.double()).norm() / exact.double().norm())


def run(plan: LinearPlan, **kwargs: object) -> tuple[torch.Tensor, ...]:
    x, w, b, dy = tensors()
    y = mx_linear(x, w, b, plan, rng=rng_state(1), **kwargs)  # type: ignore[arg-type]
    y.backward(dy)
    assert x.grad is not None
    assert w.grad is not None
    assert b.grad is not None
    return y.detach(), x.grad, w.grad, b.grad


@pytest.mark.parametrize("name", ALL)
def test_close_to_the_exact_linear(name: str) -> None:
    plan = ALL[name]
    y, dx, dw, db = run(plan)
    x, w, b, dy = (t.detach().double() for t in tensors())
    flat, grad = x.reshape(-1, 96), dy.reshape(-1, 64)
    limit = LIMITS[plan.name]
    assert error(y, x @ w.t() + b) < limit
    backward = limit if plan.backward == "mx" else {"fp8": 0.08, "bf16": 0.003}[plan.backward]
    assert error(dx, dy @ w) < backward
    assert error(dw, grad.t() @ flat) < backward
    assert error(db, grad.sum(0)) < 0.01


def test_each_gemm_takes_the_operands_of_the_table() -> None:
    """Six different specs: any operand used in another place changes the result."""
    names = ("e2m1", "e2m3", "e3m2", "e4m3", "e5m2")
    plan = LinearPlan(
        "mixed",
        x_row=QuantSpec(names[0]),
        w_row=QuantSpec(names[1], "ceil"),
        dy_row=QuantSpec(names[2], hadamard=16),
        w_col=QuantSpec(names[3], hadamard=16),
        dy_col=QuantSpec(names[4], "even", hadamard=32, stochastic=True),
        x_col=QuantSpec(names[1], hadamard=32),
    )
    y, dx, dw, _ = run(plan)
    x, w, b, dy = (t.detach() for t in tensors())
    flat, grad, rng = x.reshape(-1, 96), dy.reshape(-1, 64), rng_state(1)
    fprop = quantize_rows(flat, plan.x_row, pad=True), quantize_rows(w, plan.w_row, pad=True)
    dgrad = quantize_rows(grad, plan.dy_row, pad=True), quantize_columns(w, plan.w_col, pad=True)
    wgrad = (
        quantize_columns(grad, plan.dy_col, rng=rng, pad=True),
        quantize_columns(flat, plan.x_col, pad=True),
    )
    assert y.reshape(-1, 64).equal(gemm(*fprop, backend="emulated", bias=b))
    assert dx.reshape(-1, 96).equal(gemm(*dgrad, backend="emulated"))
    assert dw.equal(gemm(*wgrad, backend="emulated"))


def test_rotating_one_operand_is_refused_when_the_plan_is_made() -> None:
    with pytest.raises(MXValueError, match=r"plan mxfp4: wgrad: dy_col is rotated by 0 points"):
        replace(mxfp4(), dy_col=QuantSpec("e2m1"))


def test_plans_refuse_what_has_no_meaning() -> None:
    with pytest.raises(MXValueError, match="backward='fp4'; valid: mx, fp8, bf16"):
        mxfp4(backward="fp4")
    with pytest.raises(MXValueError, match="backend triton has no e2m3; valid: e2m1, e4m3, e5m2"):
        mxfp6("triton")
    with pytest.raises(MXValueError, match="x_row: only gradients round stochastically"):
        replace(mxfp4(), x_row=QuantSpec("e2m1", stochastic=True))
    with pytest.raises(MXValueError, match="'cutlass'"):
        mxfp4("cutlass")
    assert set(PLANS) == {"mxfp4", "mxfp6", "mxfp8"}


def test_no_grad_and_inference_pack_no_columns() -> None:
    layer = MXLinear(96, 64, mxfp4(), dtype=torch.bfloat16)
    x = tensors()[0]
    for context in (torch.no_grad(), torch.inference_mode()):
        with census(layer) as counted, context:
            layer(x)
        roles = {role for _, role, _, _ in counted.quantizations}
        assert roles == {"input:row", "weight:row"}
    with census(layer) as counted:
        layer(x).sum().backward()
    roles = {role for _, role, _, _ in counted.quantizations}
    assert roles == {"input:dual", "weight:dual", "grad_output:dual"}


def test_frozen_weight_or_input_packs_only_what_backward_reads() -> None:
    layer = MXLinear(96, 64, mxfp6(), dtype=torch.bfloat16)
    layer.weight.requires_grad_(False)
    x = tensors()[0]
    with census(layer) as counted:
        layer(x).sum().backward()
    assert {r for _, r, _, _ in counted.quantizations} == {
        "input:row", "weight:dual", "grad_output:row"
    }  # fmt: skip
    layer.weight.requires_grad_(True)
    with census(layer) as counted:
        layer(x.detach()).sum().backward()
    assert {r for _, r, _, _ in counted.quantizations} == {
        "input:dual", "weight:row", "grad_output:column"
    }  # fmt: skip


def test_backward_after_row_only_raises_and_gives_no_gradient() -> None:
    x, w, b, dy = tensors()
    y = mx_linear(x, w, b, mxfp6(), grad_enabled=False)
    with pytest.raises(MissingOperandError, match="its column blobs were never packed"):
        y.backward(dy)
    assert x.grad is None
    assert w.grad is None


def test_side_outputs_are_uint8_and_not_differentiable() -> None:
    x, w, b, _ = tensors(tokens=(64,))
    for needs, packed in (((True, True), True), ((False, False), False)):
        y, *blobs = _MXLinearFunction.apply(x, w, b, None, None, None, mxfp6(), needs)
        assert y.requires_grad
        assert len(blobs) == 4
        for blob in blobs:
            assert blob.dtype == torch.uint8
            assert not blob.requires_grad
            assert (blob.numel() > 0) == packed


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["mxfp4", "mxfp6", "mxfp4 fp8"])
def test_activation_checkpointing_gives_the_same_gradients(name: str, reentrant: bool) -> None:
    plan = ALL[name]
    expected = run(plan)
    x, w, b, dy = tensors()
    y = checkpoint(lambda v: mx_linear(v, w, b, plan, rng=rng_state(1)), x, use_reentrant=reentrant)
    y.backward(dy)
    for got, want in zip((y, x.grad, w.grad, b.grad), expected, strict=True):
        assert got is not None
        assert got.equal(want)


def test_reentrant_checkpoint_packs_rows_first_and_both_when_recomputed() -> None:
    layer = MXLinear(96, 64, mxfp6(), dtype=torch.bfloat16)
    x = tensors()[0]
    with census(layer) as counted:
        y = checkpoint(layer, x, use_reentrant=True)
        assert {r for _, r, _, _ in counted.quantizations} == {"input:row", "weight:row"}
        y.sum().backward()
    assert counted.quantizations["", "input:dual", "e2m3", "reference"] == 1


def test_two_micro_batches_in_flight_do_not_mix() -> None:
    layer = MXLinear(96, 64, mxfp6(), dtype=torch.bfloat16)
    first, second = tensors()[0], tensors(tokens=(5, 7))[0]
    ys = [layer(first), layer(second)]
    for y in ys:
        y.float().sum().backward()
    both = layer.weight.grad
    assert both is not None
    layer.weight.grad = None
    alone = []
    for x in (first, second):
        x.grad = None
        layer(x).float().sum().backward()
        alone.append(layer.weight.grad)
        layer.weight.grad = None
    assert both.equal(alone[0] + alone[1])


def test_stochastic_gradients_differ_between_calls_and_repeat_from_the_seed() -> None:
    x, _, _, dy = tensors()

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = MXLinear(96, 64, mxfp4(), seed=5, dtype=torch.bfloat16)
        found = []
        for _ in range(2):
            x.grad = None
            layer(x).backward(dy)
            assert x.grad is not None
            found.append(x.grad)
        assert layer.rng.tolist() == [5, 2]
        with torch.no_grad():
            layer(x)
        assert layer.rng.tolist() == [5, 2]
        return found

    one, two = gradients()
    assert not one.equal(two)
    again = gradients()
    assert one.equal(again[0])
    assert two.equal(again[1])


@dynamo
@pytest.mark.parametrize("name", ALL)
def test_compiles_without_a_graph_break_to_the_same_bits(name: str) -> None:
    torch.compiler.reset()
    plan = ALL[name]
    expected = run(plan)
    x, w, b, dy = tensors()
    compiled = torch.compile(
        lambda v: mx_linear(v, w, b, plan, rng=rng_state(1)), fullgraph=True, backend="aot_eager"
    )
    y = compiled(x)
    y.backward(dy)
    for got, want in zip((y, x.grad, w.grad, b.grad), expected, strict=True):
        assert got is not None
        assert got.equal(want)


@dynamo
def test_the_compiled_module_advances_its_rng_and_does_not_recompile_per_layer() -> None:
    torch.compiler.reset()
    layers = [MXLinear(96, 96, mxfp4(), dtype=torch.bfloat16) for _ in range(3)]
    counter = torch._dynamo.testing.CompileCounter()
    compiled = [torch.compile(layer, fullgraph=True, backend=counter) for layer in layers]
    x = tensors()[0]
    for layer, call in zip(layers, compiled, strict=True):
        call(x)
        assert layer.rng.tolist() == [0, 1]
    assert counter.frame_count == 1


def test_gradients_of_any_layout_equal_their_contiguous_copies() -> None:
    plan = mxfp6()
    dy = tensors()[3]
    wide = torch.full((3, 20, 128), float("nan"), dtype=torch.bfloat16)
    wide[..., ::2] = dy
    transposed = dy.transpose(0, 1).contiguous().transpose(0, 1)
    expanded = dy[:1, :1].expand(3, 20, 64)
    for grad in (wide[..., ::2], transposed, expanded):
        results = []
        for given in (grad, grad.contiguous()):
            x, w, b, _ = tensors()
            mx_linear(x, w, b, plan).backward(given)
            results.append((x.grad, w.grad, b.grad))
        for got, want in zip(*results, strict=True):
            assert got is not None
            assert got.equal(want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["mxfp6", "mxfp4 bf16", "mxfp4 fp8"])
def test_main_grad_accumulates_over_micro_batches(name: str, dtype: torch.dtype) -> None:
    plan = ALL[name]
    *_, dw, _ = run(plan)
    x, w, b, dy = tensors()
    main = torch.ones(64, 96, dtype=dtype)
    for _ in range(2):
        mx_linear(x, w, b, plan, rng=rng_state(1), main_grad=main).backward(dy)
    assert w.grad is None
    assert error(main - 1, 2 * dw) < 0.02
    w.grad_added_to_main_grad = False  # type: ignore[attr-defined]
    mx_linear(x, w, b, plan, rng=rng_state(1), main_grad=main).backward(dy)
    assert w.grad_added_to_main_grad  # type: ignore[attr-defined]
    assert w.grad is not None
    assert error(main - 1, 3 * dw) < 0.02


def test_empty_batch_gives_empty_output_and_zero_weight_gradient() -> None:
    for plan in ALL.values():
        x, w, b, _ = tensors()
        empty = x.detach()[:0].requires_grad_()
        y = mx_linear(empty, w, b, plan, rng=rng_state(0))
        assert tuple(y.shape) == (0, 20, 64)
        y.sum().backward()
        assert empty.grad is not None
        assert tuple(empty.grad.shape) == (0, 20, 96)
        assert w.grad is not None
        assert w.grad.eq(0).all()


def test_odd_feature_counts_are_padded_not_refused() -> None:
    x, w, b, dy = tensors(tokens=(7,), k=40, n=24)
    y = mx_linear(x, w, b, mxfp8())
    y.backward(dy)
    assert error(y.detach(), (x @ w.t() + b).detach()) < 0.08
    assert x.grad is not None
    assert error(x.grad, dy @ w.detach()) < 0.08


def test_a_nan_token_spoils_its_own_outputs() -> None:
    x, w, b, _ = tensors()
    with torch.no_grad():
        x[1, 2, 5] = float("nan")
        y = mx_linear(x, w, b, mxfp6())
    bad = y.isnan().any(-1)
    assert bad[1, 2]
    assert int(bad.sum()) == 1


def test_bad_calls_are_refused() -> None:
    x, w, b, _ = tensors()
    with pytest.raises(MXValueError, match=r"x is \(3, 20, 96\), weight \(64, 95\)"):
        mx_linear(x, w[:, 1:], b, mxfp6())
    with pytest.raises(MXValueError, match="rounds gradients stochastically: pass rng"):
        mx_linear(x, w, b, mxfp4())
    with pytest.raises(MXValueError, match=r"float16 or float32, got torch\.float64"):
        mx_linear(x.double(), w.double(), None, mxfp6())
    with pytest.raises(MXUnavailableError, match=r"backend 'aiter'"):
        mx_linear(x, w, b, mxfp6("aiter"))


def test_state_dict_has_the_keys_of_linear() -> None:
    layer = MXLinear(96, 64, mxfp4())
    assert list(layer.state_dict()) == list(torch.nn.Linear(96, 64).state_dict())
    layer.load_state_dict(torch.nn.Linear(96, 64).state_dict())
    assert "plan=mxfp4" in repr(layer)
    assert (layer.in_features, layer.out_features) == (96, 64)
