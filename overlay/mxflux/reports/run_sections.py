# SPDX-License-Identifier: Apache-2.0
"""Sections of a run report that tell what the run was: identity, attempts, precision, config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .identity import chain
from .page import Cell, Section, Table, code, row
from .precision_table import direction_rows
from .run_files import FILES, flat

if TYPE_CHECKING:
    from .page import Tone
    from .run_files import RunFiles

_FINE = {"ok", "default", "expected"}


def absent(run: RunFiles, *names: str) -> tuple[str, ...]:
    """What the run did not record, or cannot be read, among ``names``."""
    gone = [f"not recorded: {name} is missing ({FILES[name]})" for name in names
            if name in run.missing]  # fmt: skip
    return (*gone, *(f"{n}: {why}" for n, why in run.damaged.items() if n in names))


def identity_section(run: RunFiles) -> Section:
    """The hash chain, versions and what the launcher changed in the environment."""
    links = tuple(
        row(
            link.name,
            code(link.digest),
            code(link.chained[:16] if link.chained else None),
            Cell(link.note, "bad" if link.is_broken else ""),
        )
        for link in chain(run)
    )
    if run.record.get("tree_modified"):
        note = Cell("the tree was changed after it was built: the digest is not what ran", "bad")
        links = (row("tree", code(None), code(None), note), *links)
    chained = Table(("", "SHA-256", "chained", ""), links)
    facts = {key: run.record.get(key) for key in ("mxtree_version", "device", "world_size")}
    facts |= dict(run.record.get("versions") or {})
    versions = _pairs("versions", {k: v for k, v in facts.items() if v is not None})
    environment = _environment(run.record.get("environment_delta") or {})
    tables = tuple(filter(None, (chained, versions, environment, _patches(run.record))))
    return Section("Identity", tables=tables, absent=absent(run, "run.json"))


def _patches(record: dict[str, Any]) -> Table | None:
    rows = tuple(
        row(upstream, number, code(digest))
        for upstream, patches in dict(record.get("patches") or {}).items()
        for number, _, digest in (str(patch).partition(" ") for patch in patches)
    )
    head = ("upstream", "patch", "SHA-256")
    return Table(head, rows, f"{len(rows)} patches", folded=True) if rows else None


def attempts_section(run: RunFiles) -> Section:
    """Starts, ends and why; the checkpoints that are there."""
    head = ("attempt", "started", "ended", "status", "exit code", "first step", "reason")
    attempts = tuple(
        row(
            number, attempt.get("started"), attempt.get("ended"), _status(attempt.get("status")),
            attempt.get("exit_code"), attempt.get("first_step"), attempt.get("reason"),
        )
        for number, attempt in enumerate(run.record.get("attempts") or (), start=1)
    )  # fmt: skip
    saved = tuple(
        row(event.get("step"), code(str(event.get("path", ""))), event.get("seconds"))
        for event in run.events("checkpoint")
    )
    tables = [Table(head, attempts)] if attempts else []
    if saved:
        tables.append(Table(("step", "checkpoint", "seconds"), saved))
    kept = ", ".join(run.checkpoints) or "none"
    return Section(
        "Attempts and checkpoints",
        text=(f"checkpoints in the run directory: {kept}; latest: {run.latest or 'none'}",),
        tables=tuple(tables),
        absent=absent(run, "run.json"),
    )


def precision_section(run: RunFiles) -> Section:
    """Requested against executed, from the census of the first step."""
    if run.census is None:
        return Section("Precision", absent=absent(run, "census.json"))
    rows = direction_rows(run.census, run.recipe.get("precision") or {})
    if not rows:
        text = "no MX format was requested, and no linear ran in one"
        return Section("Precision", text=(text,), absent=absent(run, "recipe.yaml"))
    head = ("GEMM", "requested", "executed", "linears", "expected", "GEMMs", "quantizations", "")
    table = tuple(
        row(
            r.direction, r.requested, r.executed, r.linears, r.expected, r.gemms, r.quantizations,
            Cell("as requested", "good") if r.matches else Cell("differs", "bad"),
        )
        for r in rows
    )  # fmt: skip
    modules = tuple(
        row(code(name), way, what.get("format"), what.get("backend"), what.get("quantizations"),
            what.get("gemms"))
        for name, ways in run.census.items() if isinstance(ways, dict)
        for way, what in ways.items()
    )  # fmt: skip
    whole = Table(("linear", "GEMM", "format", "backend", "quantizations", "GEMMs"), modules,
                  f"all {len(modules)} rows of the census", folded=True)  # fmt: skip
    return Section(
        "Precision",
        text=("Census of the first step: what was multiplied, by what.",),
        tables=(Table(head, table), whole),
        absent=absent(run, "census.json", "recipe.yaml"),
    )


def fusions_section(run: RunFiles) -> Section:
    """Every gate of the first step."""
    if run.fusions is None:
        return Section("Fusions", absent=absent(run, "fusions.json"))
    head = ("key", "place", "asked", "engaged", "declined")
    rows = tuple(
        row(code(str(gate.get("key"))), str(gate.get("place", "")), str(gate.get("mode")),
            int(gate.get("engaged") or 0) + int(gate.get("traced") or 0), _declined(gate))
        for gate in run.fusions
    )  # fmt: skip
    text = () if rows else ("the model has no gated fusion",)
    return Section("Fusions", text, (Table(head, rows),) if rows else ())


def effective_section(run: RunFiles) -> Section:
    """Requested keys that did not arrive as asked, and all of them folded."""
    if run.effective is None:
        return Section("Requested and effective", absent=absent(run, "effective.json"))
    head = ("key", "requested", "arguments", "validated", "live", "origin", "")
    odd = [entry for entry in run.effective if entry.get("status") not in _FINE]
    said = f"{len(run.effective)} keys; {len(odd)} did not arrive as requested"
    tables = [Table(head, tuple(map(_effective, odd)))] if odd else []
    everything = tuple(map(_effective, run.effective))
    tables.append(Table(head, everything, f"all {len(everything)} keys", folded=True))
    return Section("Requested and effective", (said,), tuple(tables))


def recipe_section(run: RunFiles) -> Section:
    """The resolved recipe, folded."""
    keys = flat(run.recipe)
    if not keys:
        return Section("Recipe", absent=absent(run, "recipe.yaml"))
    rows = tuple(row(code(key), plain(value)) for key, value in keys.items())
    return Section("Recipe", tables=(Table(("key", "value"), rows, f"{len(rows)} keys", True),))


def _pairs(caption: str, values: dict[str, Any]) -> Table | None:
    rows = tuple(row(code(name), plain(value)) for name, value in values.items())
    return Table((caption, ""), rows) if rows else None


def _environment(delta: dict[str, Any]) -> Table | None:
    known = ("set", "unset", "replaced", "kept")
    rows = [
        row(action, code(name), plain(value))
        for action in known
        for name, value in dict(delta.get(action) or {}).items()
    ]
    rows += [row("", code(name), plain(value)) for name, value in delta.items()
             if name not in known]  # fmt: skip
    return Table(("environment", "variable", "value"), tuple(rows)) if rows else None


def _effective(entry: dict[str, Any]) -> tuple[Cell, ...]:
    status = str(entry.get("status"))
    columns = ("requested", "arguments", "validated", "live", "origin")
    values = [plain(entry.get(name)) for name in columns]
    tone: Tone = "good" if status in _FINE else "bad"
    return row(code(str(entry.get("key"))), *values, Cell(status, tone))


def _declined(gate: dict[str, Any]) -> Cell:
    reasons = dict(gate.get("declined") or {})
    text = "; ".join(f"{reason}: {count}" for reason, count in reasons.items())
    if not text:
        return Cell("\u2014")
    return Cell(text, "bad" if gate.get("mode") == "on" else "warn")


def _status(status: Any) -> Cell:
    tones: dict[str, Tone] = {
        "finished": "good",
        "stopped": "warn",
        "running": "warn",
        "failed": "bad",
    }
    return Cell(str(status), tones.get(str(status), "bad"))


def plain(value: Any) -> str:
    """A recipe's value as YAML would have it on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{key}={plain(inner)}" for key, inner in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    return str(value)
