# SPDX-License-Identifier: Apache-2.0
"""All rows together, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.environment.doctor import machine, network, training
from mxtree.environment.doctor.row import Row, Status, missing
from mxtree.errors import FatalError
from mxtree.project import find_project
from mxtree.tree.manifest import load_manifest

if TYPE_CHECKING:
    from mxtree.project import Project


def examine(python: Path | None) -> list[Row]:
    """Look at everything; ``python`` is the training environment to look into, if it is named."""
    project = _project()
    rows = [
        machine.git(),
        machine.tool_python(),
        machine.patch_attributes(project),
        machine.cache(),
        machine.disk(project.root if project else Path.cwd()),
        network.package_index(),
        machine.training_python(),
    ]
    found = python or training.default_python(project)
    if found is None:
        return [*rows, missing("environment", "no Python on PATH", "mxtree install")]
    return [*rows, *training.rows(found, _tree_digest(project))]


def text(rows: list[Row]) -> str:
    """Return the screen: a line for each row, the fix below it where there is one."""
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        lines.append(f"{row.status:7}  {row.name:{width}}  {row.found}")
        if row.status is not Status.OK:
            mark = "" if row.required else "optional: "
            lines.append(f"{'':7}  {'':{width}}  {mark}{row.fix}")
    return "\n".join([*lines, "", verdict(rows)])


def verdict(rows: list[Row]) -> str:
    """Return the last line: what does not let mxtree work."""
    failing = [row.name for row in rows if row.fails]
    return f"to be put right: {', '.join(failing)}" if failing else "nothing required is wrong"


def as_json(rows: list[Row]) -> str:
    """Return the machine form."""
    listed = [
        {
            "name": row.name,
            "status": str(row.status),
            "required": row.required,
            "found": row.found,
            "fix": row.fix,
        }
        for row in rows
    ]
    return json.dumps({"ok": not any(row.fails for row in rows), "rows": listed}, indent=2)


def _project() -> Project | None:
    try:
        return find_project()
    except FatalError:
        return None


def _tree_digest(project: Project | None) -> str | None:
    try:
        return load_manifest(project.default_tree).digest if project else None
    except FatalError:
        return None
