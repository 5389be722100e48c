# SPDX-License-Identifier: Apache-2.0
"""What each patch of TE changes, as an override of the stock function around it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformer_engine.common import recipe as te_recipe
from transformer_engine.pytorch import _extra_state, quantization
from transformer_engine.pytorch.cpp_extensions import gemm as te_gemm
from transformer_engine.pytorch.module import base, layernorm_mlp
from transformer_engine.pytorch.module.layernorm_mlp import LayerNormMLP
from transformer_engine.pytorch.ops.op import BasicOperation
from transformer_engine.pytorch.quantized_tensor import QuantizedTensorStorage
from transformer_engine.pytorch.tensor.utils import is_custom

from mxflux.te.zero_patch import recipes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.te.zero_patch.undo import Overrides

GEMMS = {"TN": "FPROP", "NN": "DGRAD", "NT": "WGRAD"}
#: Parameters of the functions that an override calls by position or takes apart.
SIGNATURES = {
    "custom_gemm": [
        "A", "B", "workspace", "out_dtype", "quantization_params", "gelu", "gelu_in",
        "accumulate", "layout", "out", "bias", "use_split_accumulator", "grad",
    ],
    "grad_output_preprocess": ["ctx", "grad_output", "row_parallel_mode", "quantizer"],
    "_get_quantizers": ["self", "fp8_output", "is_grad_enabled"],
    "reset_recipe_state": ["self", "recipe"],
    "set_meta_tensor": ["self", "fwd", "recipe"],
    "_is_weight_workspace_valid": ["workspace", "quantizer"],
    "check_recipe_support": ["recipe"],
}  # fmt: skip


def override(made: Overrides) -> None:
    """Put every override in place.

    Raises RuntimeError where a function of TE is not the one that the overrides are written around.
    """
    module = base.TransformerEngineBaseModule
    stock = {
        "custom_gemm": te_gemm.custom_gemm,
        "grad_output_preprocess": module.grad_output_preprocess,
        "_get_quantizers": LayerNormMLP._get_quantizers,
        "reset_recipe_state": BasicOperation.reset_recipe_state,
        "set_meta_tensor": module.set_meta_tensor,
        "_is_weight_workspace_valid": base._is_weight_workspace_valid,
        "check_recipe_support": quantization.check_recipe_support,
    }
    for name, function in stock.items():
        found = list(inspect.signature(function).parameters)
        if found != SIGNATURES[name]:
            raise RuntimeError(f"zero-patch mode: {name} takes {found}, not {SIGNATURES[name]}")
    made.everywhere(te_gemm, "custom_gemm", _custom_gemm(te_gemm.custom_gemm))
    made.everywhere(te_gemm, "general_gemm", _general_gemm(te_gemm.general_gemm))
    preprocess = _grad_output_preprocess(module.grad_output_preprocess)
    made.attribute(module, "grad_output_preprocess", staticmethod(preprocess))
    made.attribute(LayerNormMLP, "_get_quantizers", _get_quantizers(LayerNormMLP._get_quantizers))
    support = _check_recipe_support(quantization.check_recipe_support)
    made.everywhere(quantization, "check_recipe_support", support)
    for name, recipe in recipes.make(te_recipe).items():
        made.attribute(te_recipe, name, recipe)
        policies, policy = _extra_state._RECIPE_POLICIES, _extra_state.CheckpointExtraStatePolicy
        made.item(policies, (te_recipe.__name__, name), policy.STATELESS)
    valid = _is_weight_workspace_valid(base._is_weight_workspace_valid)
    made.everywhere(base, "_is_weight_workspace_valid", valid)
    reset = _reset_recipe_state(BasicOperation.reset_recipe_state)
    made.attribute(BasicOperation, "reset_recipe_state", reset)
    made.attribute(module, "set_meta_tensor", _set_meta_tensor(module.set_meta_tensor))
    if hasattr(te_gemm, "_unwrap_tensor"):
        made.everywhere(te_gemm, "_unwrap_tensor", _unwrap_tensor(te_gemm._unwrap_tensor))


def _custom_gemm(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patches 0001 and 0003: write where it was told to; tell the GEMMs apart by layout."""

    def custom_gemm(
        A: Any,
        B: Any,
        workspace: Any,
        out_dtype: torch.dtype | None = None,
        quantization_params: Any = None,
        gelu: bool = False,
        gelu_in: Any = None,
        accumulate: bool = False,
        layout: str = "TN",
        out: torch.Tensor | None = None,
        bias: Any = None,
        use_split_accumulator: bool = False,
        grad: bool = False,  # noqa: ARG001 - not every backward caller sets it
    ) -> Any:
        for name, given in (
            ("quantization_params", quantization_params is not None),
            ("gelu", gelu),
            ("gelu_in", gelu_in is not None),
            ("a bias gradient", bias is not None and layout != "TN"),
        ):
            if given:
                raise NotImplementedError(f"Custom GEMM cannot honour {name}")
        if accumulate and out is None:
            raise ValueError("Custom GEMM: accumulate without a tensor to accumulate into")
        if out is not None and out_dtype not in {None, out.dtype}:
            raise ValueError(f"Custom GEMM: out_dtype is {out_dtype}, out is {out.dtype}")
        options = {"layout": layout, "bias": bias, "grad": layout != "TN"}
        options["use_split_accumulator"] = use_split_accumulator
        if out is None:
            return stock(A, B, workspace, out_dtype, **options)
        # A sum rounds once, in `out`.
        wanted = torch.float32 if accumulate else out.dtype
        result, *rest = stock(A, B, workspace, wanted, **options)
        if result.shape != out.shape or result.dtype != wanted:
            raise ValueError(
                f"{GEMMS[layout]} GEMM: qgemm returned {tuple(result.shape)} {result.dtype} "
                f"for an output of {tuple(out.shape)} {out.dtype}"
            )
        return (out.add_(result) if accumulate else out.copy_(result), *rest)

    return custom_gemm


def _general_gemm(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0001: refuse what a custom GEMM would drop."""
    signature = inspect.signature(stock)

    def general_gemm(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        asked = given.arguments
        if is_custom(asked["A"]) or is_custom(asked["B"]):
            for name, set_ in (
                ("alpha", asked["alpha"] != 1.0),
                ("beta", asked["beta"] not in {None, float(asked["accumulate"])}),
                ("ub", asked["ub"] is not None),
                ("extra_output", asked["extra_output"] is not None),
                ("bulk_overlap", asked["bulk_overlap"]),
            ):
                if set_:
                    raise NotImplementedError(f"Custom GEMM cannot honour {name}")
        return stock(*args, **options)

    return general_gemm


class _WithoutBias:
    """A backward's context that says it has no bias, and is the original in all else."""

    use_bias = False

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _grad_output_preprocess(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0002: the bias gradient of a custom quantizer is summed outside of C++."""

    def grad_output_preprocess(
        ctx: Any, grad_output: torch.Tensor, row_parallel_mode: bool, quantizer: Any
    ) -> Any:
        quantized = ctx.fp8 and ctx.backward_override is None
        if not (ctx.use_bias and quantized and is_custom(quantizer)) or ctx.debug:
            return stock(ctx, grad_output, row_parallel_mode, quantizer)
        bias = grad_output.reshape(-1, grad_output.shape[-1]).sum(dim=0)
        packed, _ = stock(_WithoutBias(ctx), grad_output, row_parallel_mode, quantizer)
        return packed, bias

    return grad_output_preprocess


def _get_quantizers(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0003: FC2's weight gradient reads the columns of FC2's input."""

    def _get_quantizers(self: Any, fp8_output: bool, is_grad_enabled: bool) -> Any:
        found = stock(self, fp8_output, is_grad_enabled)
        if self.fp8 and is_grad_enabled:
            quantizer = self.quantizers["scaling_fwd"][layernorm_mlp.FP8FwdTensorIdx.GEMM2_INPUT]
            if is_custom(quantizer):
                quantizer.set_usage(columnwise=True)
        return found

    return _get_quantizers


def _check_recipe_support(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0004: ask a recipe at autocast entry whether it can run."""

    def check_recipe_support(recipe: Any) -> None:
        stock(recipe)
        check = getattr(recipe, "check_support", None)
        supported, why = (True, "") if check is None else check()
        if not supported:
            raise RuntimeError(why)

    return check_recipe_support


def _is_weight_workspace_valid(stock: Callable[..., bool]) -> Callable[..., bool]:
    """Patch 0007: a cached custom weight must be this quantizer's, in the directions wanted."""

    def _is_weight_workspace_valid(workspace: Any, quantizer: Any) -> bool:
        if is_custom(workspace) and (
            workspace._quantizer is not quantizer
            or (quantizer.rowwise_usage and workspace.data is None)
            or (quantizer.columnwise_usage and workspace.data_t is None)
        ):
            return False
        return stock(workspace, quantizer)

    return _is_weight_workspace_valid


def _reset_recipe_state(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0008: another custom recipe of the same class makes new quantizers too."""

    def reset_recipe_state(self: Any, *, recipe: Any) -> None:
        if recipe is not None and recipe.custom() and self._fp8_metas is not None:
            kept = [meta for meta in self._fp8_metas.values() if meta is not None]
            states = [v for meta in kept for v in meta.values() if hasattr(v, "num_quantizers")]
            if any(state.recipe != recipe for state in states):
                stock(self, recipe=None)
        stock(self, recipe=recipe)

    return reset_recipe_state


def _set_meta_tensor(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0008 up to TE 2.17: a module, too, takes the quantizers of another custom recipe."""

    def set_meta_tensor(self: Any, fwd: bool, recipe: Any) -> None:
        state = self.fp8_meta.get("scaling_fwd" if fwd else "scaling_bwd")
        if (
            recipe.custom()
            and self.fp8_meta_tensors_initialized
            and getattr(state, "recipe", recipe) != recipe
        ):
            self.fp8_meta_tensors_initialized = False
            try:
                stock(self, fwd, recipe)
            finally:
                self.fp8_meta_tensors_initialized = True
        else:
            stock(self, fwd, recipe)

    return set_meta_tensor


def _unwrap_tensor(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Patch 0009, from TE 2.19 on: refuse what no GEMM multiplies."""
    from transformer_engine.pytorch.tensor.storage.identity_tensor_storage import (
        IdentityTensorStorage,
    )

    wrappers = (te_gemm.DebugQuantizedTensor, te_gemm.HybridQuantizedTensorStorage)
    known = (*te_gemm._NATIVE_GEMM_INPUT_STORAGES, *wrappers, IdentityTensorStorage)

    def _unwrap_tensor(tensor: Any, usage: str) -> Any:
        if isinstance(tensor, QuantizedTensorStorage) and not (
            isinstance(tensor, known) or is_custom(tensor)
        ):
            raise TypeError(
                f"No GEMM multiplies {type(tensor).__name__}: not a TE format, and not custom"
            )
        return stock(tensor, usage)

    return _unwrap_tensor
