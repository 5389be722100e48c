# SPDX-License-Identifier: Apache-2.0
"""The MXFP4 recipe, and FP4 autocasts other than Transformer Engine's, for Megatron's FP4 context.

``megatron.core.fp4_utils.get_fp4_context`` asks, in this order: does this layer run in FP4 at all;
is a provider registered here, and ``fp4_use_native_te_autocast`` not set; else Transformer Engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mxflux.megatron.mx_recipe import mx_recipe

Fp4ContextProvider = Callable[[Any], AbstractContextManager[Any]]


def mxfp4_recipe(config: Any) -> Any:
    """A ``transformer_engine.common.recipe.MXFP4BlockScaling`` for a ``TransformerConfig``.

    Raises ValueError and RuntimeError as :func:`mxflux.megatron.mx_recipe.mx_recipe` does.
    """
    return mx_recipe("MXFP4BlockScaling", "fp4_recipe='mxfp4'", config)


def set_fp4_context_provider(provider: Fp4ContextProvider | None) -> None:
    """Register the autocast to use in place of Transformer Engine's, or None for none.

    Args:
        provider: called with the ``TransformerConfig`` for each FP4 region (a layer, or the whole
            model), returns the context manager to run it in. A config with
            ``fp4_use_native_te_autocast`` never reaches it.

    Raises:
        RuntimeError: Megatron-LM lacks the hook, or another provider is registered.
    """
    fp4_utils: Any = importlib.import_module("megatron.core.fp4_utils")
    if not hasattr(fp4_utils, "fp4_context_provider"):
        raise RuntimeError(
            f"{fp4_utils.__file__} has no hook for an FP4 context provider: run a Megatron-LM "
            "with mxtree's patches (`mxtree build`)."
        )
    current = fp4_utils.fp4_context_provider
    if provider is None:
        fp4_utils.fp4_context_provider = None
    elif current is None:
        fp4_utils.fp4_context_provider = _Checked(provider)
    elif current.provider is not provider:
        raise RuntimeError(
            f"{current.provider!r} is already the FP4 context provider: call "
            f"set_fp4_context_provider(None) before registering {provider!r}."
        )


class _Checked:
    """A provider, refused where Megatron would not ask it."""

    def __init__(self, provider: Fp4ContextProvider) -> None:
        self.provider = provider

    def __call__(self, config: Any) -> AbstractContextManager[Any]:
        if getattr(config, "cuda_graph_impl", "none") == "transformer_engine":
            raise ValueError(
                "cuda_graph_impl='transformer_engine' captures Transformer Engine's own FP4 "
                f"autocast, not {self.provider!r}: set fp4_use_native_te_autocast, or another "
                "cuda_graph_impl."
            )
        return self.provider(config)
