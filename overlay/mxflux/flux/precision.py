# SPDX-License-Identifier: Apache-2.0
"""Which quantization context surrounds the transformer: FP8, FP4, FP6 or none."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from megatron.core import fp4_utils, fp8_utils

from mxflux.megatron.fp6 import get_fp6_context

if TYPE_CHECKING:
    from .config import FluxConfig

Context = AbstractContextManager[Any]


class ContextBuilder(Protocol):
    """Builds the autocast of one precision, as Megatron's ``get_fp4_context`` does."""

    def __call__(self, config: FluxConfig, layer_no: int = -1) -> Context:
        """Context for a 0-based global layer, or for all of them."""
        ...


_fp6_builder: ContextBuilder | None = None


def set_fp6_context_builder(builder: ContextBuilder | None) -> None:
    """Name another builder of the FP6 autocast than ``mxflux.megatron.fp6``; None: that one."""
    global _fp6_builder  # noqa: PLW0603 - one process has one FP6 implementation
    _fp6_builder = builder


def get_fp8_context(config: FluxConfig) -> Context:
    """Context that surrounds the whole transformer.

    Local spec: always ``nullcontext`` (its linears quantize by themselves). Otherwise FP8 before
    FP4 before FP6; the builder is called once, with ``config`` alone. With
    ``first_last_layers_bf16`` each layer enters its own context (:func:`get_layer_context`).
    Raises RuntimeError when a precision is asked for and its builder returns no context.
    """
    asked = _asked(config)
    if asked is None or config.first_last_layers_bf16:
        return nullcontext()
    return _require_context(asked, _builder(asked)(config))


def get_layer_context(config: FluxConfig, layer_no: int) -> Context:
    """Context of one layer (0-based global index) when edge layers stay in BF16, else none.

    Raises RuntimeError when the layer should be quantized and its builder returns no context.
    """
    asked = _asked(config)
    if asked is None or not config.first_last_layers_bf16:
        return nullcontext()
    context = _builder(asked)(config, layer_no)
    return context if _is_edge(config, layer_no) else _require_context(asked, context)


def check_turbo_gemm(
    *, fp4: object, use_turbo_gemm: bool, native_te_autocast: bool, transformer_impl: str
) -> None:
    """Refuse Primus-Turbo linears under TransformerEngine's own FP4 autocast.

    Raises ValueError for the one combination in which Turbo's linears would run in BF16.
    """
    if fp4 and use_turbo_gemm and native_te_autocast and transformer_impl != "local":
        raise ValueError(
            f"use_turbo_gemm=True with fp4={fp4!r}, fp4_use_native_te_autocast=True and "
            f"transformer_impl={transformer_impl!r}: Turbo's linears ignore TransformerEngine's "
            "autocast and would run in BF16. Set use_turbo_gemm=False."
        )


def _asked(config: FluxConfig) -> str | None:
    if config.transformer_impl == "local":
        return None
    return next((name for name in ("fp8", "fp4", "fp6") if getattr(config, name)), None)


def _builder(name: str) -> ContextBuilder:
    if name == "fp8":
        builder: ContextBuilder = fp8_utils.get_fp8_context
    elif name == "fp4":
        builder = fp4_utils.get_fp4_context
    else:
        builder = _fp6_builder or get_fp6_context
    return builder


def _is_edge(config: FluxConfig, layer_no: int) -> bool:
    first = config.num_layers_at_start_in_bf16
    last = config.num_layers - config.num_layers_at_end_in_bf16
    return not first <= layer_no < last


def _require_context(name: str, context: Context) -> Context:
    if isinstance(context, nullcontext):
        raise RuntimeError(
            f"{name} is set but its context is empty: TransformerEngine is missing or does not "
            "know the recipe, and the run would silently be BF16"
        )
    return context
