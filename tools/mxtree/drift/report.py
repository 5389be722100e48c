# SPDX-License-Identifier: Apache-2.0
"""What a drift prints, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mxtree.drift.model import Event
from mxtree.report.escape import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mxtree.drift.model import Change, Drift, PatchDrift, SeriesDrift

_STYLES = {"high": "bold red", "changed": "yellow", "low": "cyan", "none": "green"}


def print_drift(series: Sequence[SeriesDrift], *, as_json: bool) -> None:
    """Print each symbol of each patch, then the patches by risk."""
    if as_json:
        print(json.dumps([json.loads(item.model_dump_json()) for item in series]))
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for number, item in enumerate(series):
        if number:
            console.print()
        _print_series(console, item)


def _print_series(console: Console, series: SeriesDrift) -> None:
    console.print(f"{series.upstream} {series.base}: {series.problem or ', '.join(series.over)}")
    for patch in series.patches:
        console.print(f"{patch.name} ({one_line(patch.title)})")
        for symbol in patch.symbols:
            console.print(f"  {one_line(symbol.name)}: {'; '.join(verdict(symbol))}")
    if not series.patches:
        return
    console.print("what will hurt next:")
    width = max(len(patch.risk) for patch in series.patches)
    for patch in series.by_risk():
        line = Text("  ").append(f"{patch.risk:{width}}", style=_STYLES[patch.risk])
        console.print(line.append(f"  {patch.name}{_reason(patch)}"))
    console.print(f"next: mxtree rebase {series.upstream} --dry-run --onto VERSION")


def verdict(symbol: Drift) -> Iterator[str]:
    """Yield what there is to say of a symbol, the first change first."""
    if symbol.kind == "unknown":
        yield "unknown"
    elif symbol.kind == "ours":
        beside = f", beside {' and '.join(map(one_line, symbol.compared))}" * bool(symbol.compared)
        yield "ours" + beside
    yield from _sentences(symbol.changes, is_named=symbol.kind == "ours")
    if not symbol.changes and symbol.kind != "unknown":
        yield "unchanged"
    if symbol.note:
        yield one_line(symbol.note)


def _sentences(changes: Iterable[Change], *, is_named: bool) -> Iterator[str]:
    for change in changes:
        who = f"{one_line(change.symbol)} " * (is_named and change.event is not Event.COLLIDES)
        where = f" to {one_line(change.to)}" if change.to else ""
        lines = f" (+{change.added} -{change.removed})"
        verb = "taken by upstream" if change.event is Event.COLLIDES else f"{change.event}{where}"
        yield f"{who}{verb} in {one_line(change.at)}{lines}"


def _reason(patch: PatchDrift) -> str:
    """Return the first change of the symbols that make up the risk."""
    worst = patch.weight[0]
    reasons = [
        f"{_short(change.symbol)} {next(iter(_sentences([change], is_named=False)))}"
        for symbol in patch.symbols
        if symbol.risk == worst
        for change in symbol.changes[:1]
    ]
    unknown = [f"{one_line(s.name)} is unknown" for s in patch.symbols if s.kind == "unknown"]
    listed = "; ".join(dict.fromkeys(reasons or unknown))
    return f": {listed}" if listed else ""


def _short(name: str) -> str:
    """Return the last two parts of a dotted name; a path as it is."""
    return one_line(name if "/" in name else ".".join(name.split(".")[-2:]))
