# SPDX-License-Identifier: Apache-2.0
"""What the first step really was: precision, attention backend and fusions, checked and written."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mxflux.fusions.gates import FusionUnavailableError

from .census import FILE as CENSUS_FILE
from .census import check_census, counted, expected_formats, quantized_linears, write_census
from .errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from mxflux.flux.config import FluxConfig
    from mxflux.flux.model import FluxModel
    from mxflux.fusions.gates import FusionGates
    from mxflux.recipe.schema import Recipe

    from .compilation import TracedOperators

FUSIONS_FILE = "fusions.json"
_TE_ATTENTION = "transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention"


class FirstStep:
    """Watches one training step and refuses to go on when it was not what the recipe says."""

    def __init__(
        self,
        recipe: Recipe,
        model: FluxModel,
        run_dir: Path | None,
        traced: TracedOperators | None = None,
    ) -> None:
        self.config: FluxConfig = model.config
        self.model = model
        self.run_dir = run_dir
        self.traced = traced
        self.formats = expected_formats(recipe, self.config)
        self.names = quantized_linears(self.config) if self.formats else ()
        self.attention: dict[str, Any] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """The step to watch is the block; what it was is written, then checked.

        Raises CheckError naming every linear, attention or gate that was not as asked.
        """
        self.model.fusion_gates.reset()
        compiled = self.traced is not None
        with counted(self.model, self.config, mx=bool(self.formats), compiled=compiled) as opened:
            yield
        if self.traced is not None:
            self.traced.count(self.model.fusion_gates)
        if self.run_dir is not None:
            write_census(self.run_dir / CENSUS_FILE, opened, self.names)
            write_fusions(self.run_dir / FUSIONS_FILE, self.model.fusion_gates)
        check_census(opened, self.names, self.formats)
        check_fp8(self.model, self.config)
        self.attention = check_attention(self.model)
        try:
            self.model.fusion_gates.require_engaged()
        except FusionUnavailableError as error:
            raise CheckError(f"first step: {error}") from error


def write_fusions(path: Path, gates: FusionGates) -> None:
    """[{key, place, mode, engaged, traced, declined: {reason: count}}]."""
    rows = [asdict(report) for report in gates.report()]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def check_fp8(model: FluxModel, config: FluxConfig) -> None:
    """Raise CheckError naming TransformerEngine linears that did not run in FP8 when all should."""
    if not config.fp8 or config.transformer_impl == "local":
        return
    modules = dict(model.named_modules())
    idle = [n for n in quantized_linears(config) if not getattr(modules.get(n), "fp8", False)]
    if idle:
        raise CheckError(
            f"first step: fp8={config.fp8!r}, but {len(idle)} linear(s) did not run in FP8:\n  "
            + "\n  ".join(idle)
        )


def check_attention(model: FluxModel) -> dict[str, Any]:
    """What attention ran; raises CheckError when TransformerEngine selected another backend."""
    asked = model.config.attention_backend.name
    if model.config.transformer_impl == "local":
        kinds = {type(core).__name__ for core in _core_attentions(model)}
        return {"asked": asked, "ran": ", ".join(sorted(kinds))}
    ran = selected_backend()
    if asked not in {"auto", ran}:
        raise CheckError(
            f"first step: attention_backend={asked}, but TransformerEngine selected {ran}. "
            "NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 makes it say why"
        )
    return {"asked": asked, "ran": ran}


def selected_backend() -> str:
    """flash, fused or unfused, as TransformerEngine's last selection in this process says.

    Raises CheckError when it selected none, or does not tell.
    """
    module = sys.modules.get(_TE_ATTENTION)
    found = getattr(module, "_attention_backends", None)
    if not isinstance(found, dict):
        raise CheckError(
            "first step: this TransformerEngine does not tell which attention backend it selected"
        )
    for name in ("flash", "fused", "unfused"):
        if found.get("use_unfused_attention" if name == "unfused" else f"use_{name}_attention"):
            return name
    raise CheckError("first step: TransformerEngine's attention never ran")


def _core_attentions(model: FluxModel) -> Iterator[torch.nn.Module]:
    for layer in model.transformer.layers:
        yield layer.self_attention.core_attention
