# SPDX-License-Identifier: Apache-2.0
"""The MXFP6 recipe and its autocast, for a config with ``fp6``: Megatron has FP8 and FP4 only."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mxflux.megatron.mx_recipe import mx_recipe


def mxfp6_recipe(config: Any) -> Any:
    """A ``transformer_engine.common.recipe.MXFP6BlockScaling`` for a config with ``fp6``.

    Raises ValueError and RuntimeError as :func:`mxflux.megatron.mx_recipe.mx_recipe` does.
    """
    asked = f"fp6={config.fp6!r}"
    return mx_recipe("MXFP6BlockScaling", asked, config, fp6_format=config.fp6.upper())


def get_fp6_context(config: Any, layer_no: int = -1) -> AbstractContextManager[Any]:
    """Transformer Engine's autocast with MXFP6BlockScaling: Megatron's get_fp4_context for FP6.

    Args:
        config: a ``TransformerConfig`` with ``fp6``: e2m3, e3m2, or None for no context.
        layer_no: 0-based global layer; -1: all of them. An edge layer that
            ``first_last_layers_bf16`` keeps in BF16 gets no context.

    Raises:
        ValueError, RuntimeError: see :func:`mxfp6_recipe`.
    """
    if not config.fp6 or _stays_bf16(config, layer_no):
        return nullcontext()
    try:
        importlib.import_module("transformer_engine")
        te = importlib.import_module("transformer_engine.pytorch")
    except ImportError as error:
        raise RuntimeError(
            f"fp6={config.fp6!r} needs Transformer Engine, which does not import here ({error}): "
            "every layer would silently be BF16. Unset fp6, or set transformer_impl='local'."
        ) from error
    recipe, group = mxfp6_recipe(config), _amax_group(config)
    context: AbstractContextManager[Any] = te.autocast(
        enabled=True, recipe=recipe, amax_reduction_group=group
    )
    return context


def _stays_bf16(config: Any, layer_no: int) -> bool:
    if layer_no < 0 or not config.first_last_layers_bf16:
        return False
    last = config.num_layers - config.num_layers_at_end_in_bf16
    return not config.num_layers_at_start_in_bf16 <= layer_no < last


def _amax_group(config: Any) -> Any:
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        return None
    return parallel_state.get_amax_reduction_group(
        with_context_parallel=True, tp_only_amax_red=config.tp_only_amax_red
    )
