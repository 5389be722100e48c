# SPDX-License-Identifier: Apache-2.0
"""Requested against executed precision, from a recipe and a run's census."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

DIRECTIONS = ("fprop", "dgrad", "wgrad")
_ELEMENTS = {
    "mxfp4": "e2m1",
    "mxfp6": "e2m3",
    "mxfp6_e3m2": "e3m2",
    "mxfp8": "e4m3",
    "mxfp8_e5m2": "e5m2",
    "fp8": "fp8-e5m2/fp8-e4m3",
}
"""What a census shows for each; bf16 is bf16. A GEMM of two formats has both, in any order."""


@dataclass(frozen=True)
class DirectionRow:
    """One direction: what was asked for, what ran, on how many of the expected linears."""

    direction: str
    requested: str
    executed: str
    linears: int
    expected: int
    gemms: int
    quantizations: int
    matches: bool


def requested_formats(precision: dict[str, Any]) -> dict[str, str]:
    """Element format of each direction that a recipe's section asks for; empty without MX."""
    fp8 = precision.get("fp8") if precision.get("gemm_backend") else None  # else it is TE's own
    forward = precision.get("fp4") or precision.get("fp6") or fp8
    if not forward:
        return {}
    named = precision.get("mx_backward_precision")
    back = _ELEMENTS.get(named, named) if named else forward
    return {"fprop": str(forward), "dgrad": str(back), "wgrad": str(back)}


def direction_rows(census: dict[str, Any], precision: dict[str, Any]) -> list[DirectionRow]:
    """A row for each direction that was requested or ran."""
    expected = set(census.get("expected") or ())
    modules = {name: ways for name, ways in census.items() if isinstance(ways, dict)}
    asked = requested_formats(precision)
    ran: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for module, ways in modules.items():
        for direction, what in ways.items():
            ran[direction][module] = what
    order = [d for d in DIRECTIONS if d in asked or d in ran]
    return [_row(direction, asked.get(direction), ran[direction], expected) for direction in order]


def _row(
    direction: str, asked: str | None, ran: dict[str, dict[str, Any]], expected: set[str]
) -> DirectionRow:
    kinds = Counter(f"{what.get('format')} on {what.get('backend')}" for what in ran.values())
    formats = {str(what.get("format")) for what in ran.values()}
    executed = ", ".join(f"{kind} ({n})" if len(kinds) > 1 else kind for kind, n in kinds.items())
    wanted = _parts(asked) if asked else None
    return DirectionRow(
        direction=direction,
        requested=asked or "no MX format",
        executed=executed or "nothing",
        linears=len(ran),
        expected=len(expected),
        gemms=sum(int(what.get("gemms", 0)) for what in ran.values()),
        quantizations=sum(int(what.get("quantizations", 0)) for what in ran.values()),
        matches=bool(formats)
        and all(_parts(name) == wanted for name in formats)
        and set(ran) == expected,
    )


def _parts(formats: str) -> set[str]:
    return set(formats.split("/"))
