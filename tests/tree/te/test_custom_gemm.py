# SPDX-License-Identifier: Apache-2.0
"""Patch 0001: the custom GEMM writes where it was told to, or says that it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from support import te_native
from support.te_exact import ExactFactory, ExactQuantizer
from torch.testing import assert_close
from transformer_engine.common.recipe import CustomRecipe
from transformer_engine.pytorch.cpp_extensions import general_gemm

M, N, K = 32, 48, 64
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7}


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """bf16 normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def fused_linear(dtype: torch.dtype, fill: float, **options: Any) -> te.Linear:
    """A Linear whose weight has a main_grad full of `fill`, as Megatron's DDP gives it one."""
    linear = te.Linear(
        K, N, bias=False, device="cpu", params_dtype=torch.bfloat16,
        fuse_wgrad_accumulation=True, **options,
    )  # fmt: skip
    linear.weight.main_grad = torch.full((N, K), fill, dtype=dtype)
    linear.weight.grad_added_to_main_grad = False
    return linear


def micro_batches(linear: te.Linear, flags: tuple[bool | None, ...]) -> torch.Tensor:
    """Run one forward and backward a flag; return the sum of the weight gradients in fp64."""
    total = torch.zeros(N, K, dtype=torch.float64)
    for seed, first in enumerate(flags):
        x, dy = data(M, K, seed=seed).requires_grad_(), data(M, N, seed=100 + seed)
        with te.autocast(recipe=CustomRecipe(qfactory=ExactFactory())):
            linear(x, is_first_microbatch=first).backward(dy)
        total += dy.double().t() @ x.detach().double()
    return total


@pytest.mark.control("main_grad was never written")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_first_micro_batch_overwrites_main_grad_and_the_next_adds(dtype: torch.dtype) -> None:
    linear = fused_linear(dtype, fill=7.0)
    expected = micro_batches(linear, (True, False))
    main_grad = linear.weight.main_grad
    assert (main_grad != 7.0).any(), "main_grad was never written"
    assert_close(main_grad.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10)
    assert linear.weight.grad_added_to_main_grad
    assert te_native.CALLS["generic_gemm"] == 0


@pytest.mark.control("main_grad was never written")
def test_without_micro_batch_flags_every_gradient_is_added() -> None:
    linear = fused_linear(torch.float32, fill=0.5)
    expected = micro_batches(linear, (None, None, None)) + 0.5
    assert (linear.weight.main_grad != 0.5).any(), "main_grad was never written"
    assert_close(linear.weight.main_grad.double(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.control("main_grad was never written")
def test_overwrite_main_grad_on_the_weight_is_honoured() -> None:
    linear = fused_linear(torch.float32, fill=7.0)
    linear.weight.overwrite_main_grad = True
    expected = micro_batches(linear, (None,))
    assert (linear.weight.main_grad != 7.0).any(), "main_grad was never written"
    assert_close(linear.weight.main_grad.double(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.control("main_grad was never written")
def test_delayed_weight_gradient_reaches_main_grad() -> None:
    linear = fused_linear(torch.float32, fill=0.0, delay_wgrad_compute=True)
    expected = micro_batches(linear, (None,))
    assert not linear.weight.main_grad.any()
    linear.backward_dw()
    assert linear.weight.main_grad.any(), "main_grad was never written"
    assert_close(linear.weight.main_grad.double(), expected, rtol=1e-6, atol=1e-5)


class WritingQuantizer(ExactQuantizer):
    """One whose weight gradient GEMM writes into `out` itself."""

    qgemm_writes_out = True

    def qgemm(self, *args: Any, out: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
        accumulate = options.pop("accumulate", None)
        result = super().qgemm(*args, **options)
        if out is None:
            return result
        self.multiplied["written"] += 1
        return out.add_(result) if accumulate else out.copy_(result)


class Operands:
    """W and X of a forward GEMM, or X and dY of a weight gradient, quantized by one factory."""

    def __init__(self) -> None:
        self.factory = ExactFactory()
        self.x, self.w, self.dy = data(M, K), data(N, K, seed=1), data(M, N, seed=2)

    def quantizer(self, role: str = "input") -> ExactQuantizer:
        return ExactQuantizer(role, self.factory.quantized, self.factory.multiplied)

    def fprop(self, **options: Any) -> torch.Tensor:
        q = self.quantizer()
        return general_gemm(q(self.w), q(self.x), **options)[0]

    def wgrad(self, **options: Any) -> torch.Tensor:
        q = self.quantizer()
        return general_gemm(q(self.x), q(self.dy), layout="NT", grad=True, **options)[0]


@pytest.mark.control("out was not used")
def test_out_decides_the_dtype_when_the_caller_names_none() -> None:
    out = torch.empty(N, K, dtype=torch.float32)
    operands = Operands()
    result = operands.wgrad(out=out)
    assert result is out, "out was not used"
    expected = operands.dy.double().t() @ operands.x.double()
    assert_close(out.double(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize(
    ("out", "named"),
    [
        (torch.zeros(K, N), r"\(48, 64\).*\(64, 48\)"),
        (torch.zeros(N * K), r"\(48, 64\).*\(3072,\)"),
        (torch.zeros(1, K), r"\(48, 64\).*\(1, 64\)"),
    ],
)
def test_an_output_of_another_shape_is_refused(out: torch.Tensor, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Operands().wgrad(out=out, out_dtype=torch.float32, accumulate=True)
    assert not out.any()


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize("quantizer", ["returns", "writes"])
def test_an_output_of_another_dtype_is_refused(quantizer: str) -> None:
    out, operands = torch.zeros(N, K, dtype=torch.bfloat16), Operands()
    cls = WritingQuantizer if quantizer == "writes" else ExactQuantizer
    q = cls("input", operands.factory.quantized, operands.factory.multiplied)
    with pytest.raises(ValueError, match=r"out_dtype is torch\.float32, out is torch\.bfloat16"):
        general_gemm(
            q(operands.x), q(operands.dy), layout="NT", grad=True, out=out, out_dtype=torch.float32
        )
    assert not operands.factory.multiplied


@pytest.mark.control("DID NOT RAISE")
def test_a_result_of_another_dtype_than_asked_for_is_refused() -> None:
    operands, out = Operands(), torch.zeros(N, K)
    with pytest.MonkeyPatch.context() as patch:
        exact = ExactQuantizer.qgemm

        def narrow(self: ExactQuantizer, *args: Any, **options: Any) -> torch.Tensor:
            return exact(self, *args, **options).bfloat16()

        patch.setattr(ExactQuantizer, "qgemm", narrow)
        with pytest.raises(ValueError, match=r"WGRAD GEMM: qgemm returned .*bfloat16.*float32"):
            operands.wgrad(out=out)
    assert not out.any()


@pytest.mark.control("DID NOT RAISE")
def test_accumulate_without_an_output_is_refused() -> None:
    with pytest.raises(ValueError, match="accumulate"):
        Operands().wgrad(accumulate=True)


@pytest.mark.control("DID NOT RAISE")
@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("quantization_params", {"quantization_params": "quantizer"}),
        ("gelu", {"gelu": True}),
        ("gelu_in", {"gelu_in": torch.zeros(M, N)}),
        ("alpha", {"alpha": 2.0}),
        ("beta", {"beta": 0.5, "accumulate": True, "out": torch.zeros(M, N)}),
        ("extra_output", {"extra_output": torch.zeros(M, N)}),
        ("bulk_overlap", {"bulk_overlap": True}),
        ("ub", {"ub": object()}),
    ],
)
def test_an_argument_that_cannot_be_honoured_is_refused(
    argument: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = Operands()
    if argument == "quantization_params":
        options = {argument: operands.quantizer()}
    if argument == "ub":
        options = {"ub": object(), "ub_type": "AG"}
        # Userbuffers want a bigger cuBLAS workspace first; how big is C++'s business.
        gemm = general_gemm.__globals__
        monkeypatch.setitem(gemm, "get_cublas_workspace", lambda *_: torch.empty(1))
    with pytest.raises(NotImplementedError, match=rf"\b{argument}\b"):
        operands.fprop(**options)
    assert not operands.factory.multiplied


@pytest.mark.control("DID NOT RAISE")
def test_a_bias_gradient_is_refused_where_the_path_has_none() -> None:
    with pytest.raises(NotImplementedError, match="bias gradient"):
        Operands().wgrad(bias=torch.zeros(N))


@pytest.mark.control("out was not used")
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_quantizer_that_writes_out_itself_is_given_it(accumulate: bool) -> None:
    operands, out = Operands(), torch.full((N, K), 3.0)
    q = WritingQuantizer("input", operands.factory.quantized, operands.factory.multiplied)
    result, *_ = general_gemm(
        q(operands.x), q(operands.dy), layout="NT", grad=True, out=out, accumulate=accumulate
    )
    assert result is out, "out was not used"
    assert operands.factory.multiplied == {"WGRAD": 1, "written": 1}
    expected = operands.dy.double().t() @ operands.x.double() + 3.0 * accumulate
    assert_close(out.double(), expected, rtol=1e-6, atol=1e-5)
