# SPDX-License-Identifier: Apache-2.0
"""Rules of `compile`: where a graph would not see what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding
from .model import MX_GATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe

STACKS = ("double_stack", "single_stack", "stack")


def _combinations(r: Recipe) -> Iterator[Finding]:
    c, te = r.compile, r.model.transformer_impl == "transformer_engine"
    if not c.enable:
        return
    for name in ("fp4", "fp6"):
        value = getattr(r.precision, name)
        if te and value:
            message = f"compile.enable=true with precision.{name}={value} in TransformerEngine"
            hint = "its MX autocast is global state that a graph does not see: disable one of them"
            yield Finding("compile.enable", message, hint)
    for key in MX_GATES:
        if getattr(r.model, key) == "on":
            message = f"compile.enable=true with model.{key}=on: the chain runs in eager only"
            yield Finding(f"model.{key}", message, "off or auto, or compile.enable: false")
    strategy = f"compile.strategy={c.strategy}"
    if c.strategy == "full_dit" and not te:
        message = f"{strategy} with model.transformer_impl=local"
        yield Finding("compile.strategy", message, "use per_block")
    if c.strategy == "whole_model" and r.parallel.overlap_param_gather:
        message = f"{strategy} with parallel.overlap_param_gather=true"
        yield Finding("compile.strategy", message, "one graph has no place to wait in")
    if c.strategy in STACKS and r.model.recompute_granularity == "full":
        message = f"{strategy} with model.recompute_granularity=full"
        yield Finding("compile.strategy", message, "nothing would be recomputed: use per_block")


RULES = (_combinations,)
