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
    """Raise RuntimeError unless TE honours `out`, knows wgrad by layout, and has bias gradients."""
    problems = _problems()
    if problems:
        import transformer_engine

        raise RuntimeError(
            f"{transformer_engine.__file__} has the MX recipes but not all patches behind them: "
            f"{'; '.join(problems)}. Build the tree again (`mxtree build`) and put it first on "
            "PYTHONPATH"
        )


@functools.cache
def _problems() -> tuple[str, ...]:
    checks = {
        "a weight gradient does not reach main_grad": _weight_gradient_arrives,
        "a module's bias has no gradient": _bias_has_gradient,
    }
    return tuple(problem for problem, works in checks.items() if not works())


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
