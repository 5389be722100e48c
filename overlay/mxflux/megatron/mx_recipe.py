# SPDX-License-Identifier: Apache-2.0
"""TransformerEngine's MX recipes as Megatron's contexts make them: from a config and from options.

Megatron makes a recipe for each region that it enters and passes it nothing but its config, which
has no fields for a GEMM backend or a backward precision. ``set_recipe_options`` holds those.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any

from mxflux.te import zero_patch

_log = logging.getLogger(__name__)
_options: dict[str, Any] = {}
_foreign_seen: set[str] = set()


def set_recipe_options(**options: Any) -> None:
    """Options of every MX recipe that Megatron's contexts make from now on, replacing those before.

    Args:
        options: fields of ``MXFP4BlockScaling`` and ``MXFP6BlockScaling``, such as backend,
            use_hadamard, dgrad_precision or wgrad_precision; none of them: TE's defaults. They are
            checked when a recipe is made. Set them before the first forward: quantizers that exist
            keep what they were made with.
    """
    _options.clear()
    _options.update(options)


def recipe_options() -> dict[str, Any]:
    """A copy of the options that are set."""
    return dict(_options)


def mx_recipe(name: str, asked: str, config: Any, **of_config: Any) -> Any:
    """The recipe ``name`` of ``transformer_engine.common.recipe``, with the options that are set.

    Args:
        name: class of the recipe.
        asked: what in the config asks for it, for messages.
        config: a ``TransformerConfig``.
        of_config: fields that follow from the config.

    Raises:
        ValueError: the config asks for FP8 attention, or an option that the recipe does not have or
            that has no meaning.
        RuntimeError: this Transformer Engine has no such recipe, or MXFLUX_TE_ZERO_PATCH=1 and it
            cannot be given one (`mxflux.te.zero_patch`).
    """
    for field in ("fp8_dot_product_attention", "fp8_multi_head_attention"):
        if getattr(config, field, False):
            raise ValueError(f"{field} is not supported with {asked}: unset it.")
    if zero_patch.wanted():
        zero_patch.enable()
    recipes = importlib.import_module("transformer_engine.common.recipe")
    recipe = getattr(recipes, name, None)
    if recipe is None:
        raise RuntimeError(
            f"{asked} needs {name}, which {_describe_te()} lacks. It is in the tree that `mxtree "
            "build` makes (patches/transformer-engine), MXFP4BlockScaling also in ROCm's "
            "Transformer Engine from 2.12 on: put one of them first on PYTHONPATH, or unset "
            f"{asked.split('=', maxsplit=1)[0]}."
        )
    known = set(inspect.signature(recipe).parameters)
    given = _options | of_config
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: {name} of {_describe_te()} has no such option, it has "
            f"{', '.join(sorted(known))}: set_recipe_options() without it."
        )
    if "backend" not in known:
        _say_whose(name)
    return recipe(**given)


def _say_whose(name: str) -> None:
    """Once: the recipe is not ours, so neither are its quantizers and GEMMs."""
    if name not in _foreign_seen:
        _foreign_seen.add(name)
        _log.warning(
            "%s is that of %s: its quantizers and GEMMs run, not mxflux's, and mxflux's census "
            "does not see them",
            name,
            _describe_te(),
        )


def _describe_te() -> str:
    te = importlib.import_module("transformer_engine")
    version = getattr(te, "__version__", "of unknown version")
    return f"Transformer Engine {version} ({getattr(te, '__file__', 'unknown path')})"
