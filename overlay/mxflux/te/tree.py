# SPDX-License-Identifier: Apache-2.0
"""Does the TransformerEngine in this process carry the patches that the recipes rely on?

A tree with the recipes but without the rest of the series, as a rebase that dropped a patch leaves
behind, would train with weight gradients missing and say nothing. So each patch is tried out, once.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from mxflux.te.plan import GemmPlan, Plan

#: A plan without quantization: its products are exact, whatever the shape.
_EXACT = Plan(GemmPlan(), GemmPlan(), GemmPlan())


def require_patches() -> None:
    """Raise RuntimeError unless TE does all that no error would reveal later.

    That is: honour `out`, know wgrad by layout, have bias gradients, let a new recipe make new
    quantizers, and multiply no storage that it does not know.
    """
    found = problems()
    if found:
        import transformer_engine

        raise RuntimeError(
            f"{transformer_engine.__file__} has the MX recipes but not all patches behind them: "
            f"{'; '.join(found)}. Build the tree again (`mxtree build`) and put it first on "
            "PYTHONPATH"
        )


@functools.cache
def problems() -> tuple[str, ...]:
    """What this TE gets wrong, in words; tried out once, until `forget`."""
    checks = {
        "a weight gradient does not reach main_grad": _weight_gradient_arrives,
        "a module's bias has no gradient": _bias_has_gradient,
        "a module keeps the quantizers of the recipe before": _module_takes_new_recipe,
        "a fused operation keeps the quantizers of the recipe before": _operation_takes_new_recipe,
        "what no GEMM knows is multiplied in BF16": _unknown_storage_is_refused,
    }
    return tuple(problem for problem, works in checks.items() if not works())


def forget() -> None:
    """Try the patches out again when next asked."""
    problems.cache_clear()


def _probe(role: str) -> Any:
    from mxflux.te.quantizer import MXQuantizer

    class Uncounted(MXQuantizer):
        """Not part of the model, so not in its census."""

        def _site(self) -> None:
            return None

    return Uncounted(_EXACT, role)


def _weight_gradient_arrives() -> bool:
    """dY^T X, added to what is there, as LayerNormMLP asks for it: without the grad flag."""
    from transformer_engine.pytorch.cpp_extensions.gemm import custom_gemm

    x, dy = _probe("input")(torch.ones(4, 3)), _probe("grad_output")(torch.ones(4, 2))
    main_grad = torch.ones(2, 3)
    try:
        custom_gemm(
            x, dy, None, out_dtype=torch.float32, accumulate=True, layout="NT", out=main_grad
        )
    except (RuntimeError, ValueError):
        return False
    return bool((main_grad == 5).all())


def _bias_has_gradient() -> bool:
    from transformer_engine.pytorch.module.base import TransformerEngineBaseModule

    context = types.SimpleNamespace(
        fp8=True,
        use_bias=True,
        debug=False,
        backward_override=None,
        sequence_parallel=False,
        ub_overlap_ag=False,
    )
    try:
        _, grad_bias = TransformerEngineBaseModule.grad_output_preprocess(
            context, torch.ones(4, 2), False, _probe("grad_output")
        )
    except (RuntimeError, TypeError):
        return False
    return bool((grad_bias == 4).all())


def _recipe_and_state_of_another() -> tuple[Any, Any]:
    from transformer_engine.common.recipe import CustomRecipe
    from transformer_engine.pytorch.quantization import CustomRecipeState

    old, new = (CustomRecipe(qfactory=lambda _role: None) for _ in range(2))
    return new, CustomRecipeState(old, mode="forward", num_quantizers=0)


def _module_takes_new_recipe() -> bool:
    """Past the shortcut for a recipe that it has, a module wants to know how many GEMMs it has."""
    from transformer_engine.pytorch.module.base import TransformerEngineBaseModule

    recipe, state = _recipe_and_state_of_another()
    module = types.SimpleNamespace(
        fp8_meta_tensors_initialized=True, fp8_meta={"scaling_fwd": state}
    )
    try:
        TransformerEngineBaseModule.set_meta_tensor(module, True, recipe)
    except KeyError as error:
        return error.args == ("num_gemms",)
    return False


def _operation_takes_new_recipe() -> bool:
    from transformer_engine.pytorch.ops.op import BasicOperation

    recipe, state = _recipe_and_state_of_another()
    metas = {"forward": {"scaling_fwd": state}, "backward": None}
    operation = types.SimpleNamespace(
        _fp8_metas=metas, _quantizers={}, num_quantizers=lambda _mode: 0
    )
    BasicOperation.reset_recipe_state(operation, recipe=recipe)
    return operation._fp8_metas["forward"] is None


def _unknown_storage_is_refused() -> bool:
    """From TE 2.19 on; earlier ones hand it to C++, which refuses it."""
    from transformer_engine.pytorch.cpp_extensions import gemm
    from transformer_engine.pytorch.quantized_tensor import QuantizedTensorStorage

    class Unknown(QuantizedTensorStorage):
        def dequantize(self, *, dtype: torch.dtype | None = None) -> torch.Tensor:
            return torch.ones(1, dtype=dtype)

    unwrap = getattr(gemm, "_unwrap_tensor", None)
    if unwrap is None:
        return True
    try:
        unwrap(Unknown(), "rowwise")
    except TypeError:
        return True
    return False
