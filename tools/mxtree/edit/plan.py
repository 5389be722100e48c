# SPDX-License-Identifier: Apache-2.0
"""What an export would write, worked out before anything is written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mxtree.edit.changes import same_content
from mxtree.series import Patch
from mxtree.series.listing import SERIES_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["unchanged", "changed", "new", "removed"]


@dataclass(frozen=True)
class Plan:
    """The series that the commits of one upstream are.

    ``patches`` are in order, with the bytes that their files are to have; ``states`` names every
    patch of the old and of the new series once.
    """

    upstream: str
    directory: Path
    patches: tuple[Patch, ...]
    states: dict[str, State]
    is_reordered: bool

    @property
    def is_clean(self) -> bool:
        """Whether the directory already holds exactly this series."""
        return not self.is_reordered and set(self.states.values()) <= {"unchanged"}

    def changed(self, *states: State) -> list[str]:
        """Return the names in one of ``states``."""
        return [name for name, state in self.states.items() if state in states]


def make_plan(
    upstream: str,
    directory: Path,
    old: Sequence[Patch],
    new: Sequence[tuple[str, bytes]],
    *,
    refresh: bool,
) -> Plan:
    """Compare the series as it is (``old``) with the exported one (``new``: name and bytes).

    A patch that differs only in object ids and line numbers keeps its bytes unless ``refresh``.
    """
    before = {patch.name: patch.raw for patch in old}
    states: dict[str, State] = {}
    patches = []
    for name, raw in new:
        kept = before.get(name)
        is_same = kept is not None and (kept == raw if refresh else same_content(kept, raw))
        states[name] = "unchanged" if is_same else "new" if kept is None else "changed"
        patches.append(Patch(directory / name, name[:4], name, kept if is_same and kept else raw))
    states |= {name: "removed" for name in before if name not in states}
    staying = [patch.name for patch in old if states[patch.name] != "removed"]
    is_reordered = staying != [patch.name for patch in patches if patch.name in before]
    return Plan(upstream, directory, tuple(patches), states, is_reordered)


def listing(names: Sequence[str], old: bytes) -> bytes:
    """Return the bytes of the series file with ``names``; comments above a patch stay above it.

    ``old`` are the bytes of the list before. A patch that is gone takes its comments along; what a
    blank line parts from the first patch is the list's own and stays.
    """
    header, above, tail = _comments(old.decode("utf-8"))
    lines: list[str] = [*header]
    for name in names:
        lines += [*above.get(name, ()), name]
    return "".join(f"{line}\n" for line in [*lines, *tail]).encode()


def _comments(text: str) -> tuple[list[str], dict[str, list[str]], list[str]]:
    header: list[str] = []
    above: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in text.removesuffix("\n").split("\n") if text else ():
        if line and not line.startswith("#"):
            above[line], pending = pending, []
            continue
        pending.append(line)
        if not line and not above:
            header, pending = [*header, *pending], []
    return header, above, pending


def write(plan: Plan) -> None:
    """Write the files that differ, then the list, then delete what is no longer listed.

    All of it is written aside first, so that a full disk changes nothing. In this order a kill
    leaves a series whose list is whole; at worst a stray file that `mxtree lint` names.
    """
    series = plan.directory / SERIES_FILE
    old = series.read_bytes() if series.exists() else b""
    files = {p.path: p.raw for p in plan.patches if plan.states[p.name] != "unchanged"}
    new = listing([patch.name for patch in plan.patches], old)
    if new != old:
        files[series] = new
    plan.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mxtree-", dir=plan.directory.parents[1]) as folder:
        aside = {path: Path(folder) / path.name for path in files}
        for path, data in files.items():
            aside[path].write_bytes(data)
        for path, staged in aside.items():
            staged.replace(path)
    for name in plan.changed("removed"):
        (plan.directory / name).unlink()
