# SPDX-License-Identifier: Apache-2.0
"""Which linears must run in which format, and the proof that one step did just that."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from mxflux.mx import tally

from .errors import CheckError
from .mx_precision import local_options, uses_mx

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from mxflux.flux.config import FluxConfig
    from mxflux.recipe.schema import Recipe

FILE = "census.json"
_ATTENTION = ("linear_qkv", "linear_proj")
_SOURCES = {
    "fprop": (("input", "row"), ("weight", "row")),
    "dgrad": (("grad_output", "row"), ("weight", "column")),
    "wgrad": (("grad_output", "column"), ("input", "column")),
}
"""Packed operands that feed each GEMM; a "dual" pack serves both directions."""


def quantized_linears(config: FluxConfig) -> tuple[str, ...]:
    """Names of the linears that a precision recipe is about: 8 in a joint block, 4 in a single one.

    With first_last_layers_bf16 the blocks at both ends are not among them.
    """
    blocks = range(config.num_layers)
    if config.first_last_layers_bf16:
        last = config.num_layers - config.num_layers_at_end_in_bf16
        blocks = range(config.num_layers_at_start_in_bf16, last)
    return tuple(
        f"transformer.layers.{block}.{linear}"
        for block in blocks
        for linear in _linears_of(block < config.num_joint_layers)
    )


def _linears_of(joint: bool) -> Iterator[str]:
    for prefix in ("", "added_") if joint else ("",):
        for name in _ATTENTION:
            yield f"self_attention.{prefix}{name}"
    for mlp in ("mlp", "context_mlp") if joint else ("mlp",):
        yield from (f"{mlp}.linear_fc1", f"{mlp}.linear_fc2")


def expected_formats(recipe: Recipe, config: FluxConfig) -> dict[str, tuple[str, str]]:
    """Direction -> (format, backend) of every GEMM of those linears; empty without an MX format."""
    precision = recipe.precision
    if not uses_mx(precision):
        return {}
    assert precision.gemm_backend is not None
    if recipe.model.transformer_impl == "local":
        from mxflux.mx.high import LABELS
        from mxflux.mx.megatron_linear import plan_for

        plan = plan_for(config, precision.gemm_backend, **local_options(precision))
        # dgrad and wgrad of a hybrid plan run in torch, from unpacked operands.
        mx = plan.backward == "mx"
        back = {
            direction: ("/".join(dict.fromkeys((a.format, b.format))), plan.backend)
            if mx
            else (LABELS[plan.backward], "torch")
            for direction, a, b in (
                ("dgrad", plan.dy_row, plan.w_col),
                ("wgrad", plan.dy_col, plan.x_col),
            )
        }
        return {"fprop": (plan.x_row.format, plan.backend), **back}
    return _te_formats(config, precision.gemm_backend)


def _te_formats(config: FluxConfig, backend: str) -> dict[str, tuple[str, str]]:
    from mxflux.megatron.fp4 import mxfp4_recipe
    from mxflux.megatron.fp6 import mxfp6_recipe
    from mxflux.te.options import Options
    from mxflux.te.plan import plan_of

    options = Options.of(mxfp4_recipe(config) if config.fp4 else mxfp6_recipe(config))
    plan = plan_of(options, backend)
    return {
        direction: (plan.gemm(direction).format, plan.gemm(direction).backend or "torch")
        for direction in tally.DIRECTIONS
    }


@contextlib.contextmanager
def counted(
    model: torch.nn.Module, config: FluxConfig, *, mx: bool, compiled: bool
) -> Iterator[tally.Census]:
    """Count a step of ``model``; without an MX format the table stays empty.

    ``compiled``: the linears keep the names they are counted under, which then count nothing;
    without them every graph would be compiled anew for the second step.
    """
    if not mx:
        yield tally.Census()
        return
    if config.transformer_impl == "local":
        with tally.census(model) as opened:
            sites = [(m, m.mx_site) for m in model.modules() if hasattr(m, "mx_site")]
            yield opened
        for module, site in sites if compiled else ():
            module.__dict__["mx_site"] = site
        return
    from mxflux.te.tally import census

    with census(model) as opened:
        yield opened


def check_census(
    opened: tally.Census, names: tuple[str, ...], formats: dict[str, tuple[str, str]]
) -> None:
    """Raise CheckError naming every linear that missed a direction, or ran in another format.

    Linears that are not in ``names`` must have run in no MX format at all.
    """
    lines = []
    for name in names:
        for direction, (wanted, backend) in formats.items():
            ran = {
                (fmt, by)
                for (module, way, fmt, by), count in opened.gemms.items()
                if module == name and way == direction and count
            }
            if ran != {(wanted, backend)}:
                found = ", ".join(f"{fmt} on {by}" for fmt, by in sorted(ran)) or "nothing"
                lines.append(f"  {name}: {direction} ran {found}, not {wanted} on {backend}")
    surplus = sorted({module for module, *_ in opened.gemms} - set(names))
    lines += [f"  {name}: ran in an MX format and was not meant to" for name in surplus]
    if lines:
        raise CheckError(
            f"first step: {len(lines)} linear(s) did not run as `precision` says:\n"
            + "\n".join(lines)
        )


def write_census(path: Path, opened: tally.Census, names: tuple[str, ...]) -> None:
    """{module: {direction: {format, backend, quantizations, gemms}}, ..., "expected": [...]}."""
    table: dict[str, Any] = {}
    for (module, direction, fmt, backend), count in sorted(opened.gemms.items()):
        table.setdefault(module, {})[direction] = {
            "format": fmt,
            "backend": backend,
            "quantizations": _quantizations(opened, module, direction),
            "gemms": count,
        }
    table["expected"] = list(names)
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _quantizations(opened: tally.Census, module: str, direction: str) -> int:
    total = 0
    for (name, role, _, _), count in opened.quantizations.items():
        tensor, _, way = role.partition(":")
        for source, needed in _SOURCES[direction]:
            if name == module and tensor == source and way in (needed, "dual"):
                total += count
    return total
