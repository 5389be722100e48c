# SPDX-License-Identifier: Apache-2.0
"""Read a run directory: what each file says, and which files there are not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import ReportError

if TYPE_CHECKING:
    from pathlib import Path

#: Files of a run, and what a report lacks without each of them.
FILES = {
    "run.json": "identity, environment, versions and attempts",
    "recipe.yaml": "what was asked for",
    "metrics.jsonl": "loss, learning rate, gradient norm, throughput and checkpoints",
    "effective.json": "whether every requested key arrived",
    "census.json": "which precision was really executed",
    "fusions.json": "which fusions were really engaged",
}
TRACKER = "checkpoints/latest_checkpointed_iteration.txt"


@dataclass(frozen=True)
class RunFiles:
    """What a run directory holds. ``missing`` and ``damaged`` say what is not in it, and why."""

    path: Path
    record: dict[str, Any]
    recipe: dict[str, Any]
    recipe_sha256: str | None
    metrics: tuple[dict[str, Any], ...]
    effective: tuple[dict[str, Any], ...] | None
    census: dict[str, Any] | None
    fusions: tuple[dict[str, Any], ...] | None
    checkpoints: tuple[str, ...]
    latest: str | None
    missing: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the run: recorded, else its folder's."""
        return str(self.record.get("name") or self.path.name)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind, oldest first."""
        return [event for event in self.metrics if event.get("event") == kind]


def read_run(path: Path) -> RunFiles:
    """Read a run directory. Raises ReportError when it has none of the files of a run."""
    if not path.is_dir():
        raise ReportError(f"{path} is no run directory: it does not exist")
    reader = _Reader(path)
    recipe = reader.recipe()
    run = RunFiles(
        path=path,
        record=reader.json("run.json", dict) or {},
        recipe=recipe,
        recipe_sha256=reader.recipe_sha256,
        metrics=reader.lines("metrics.jsonl"),
        effective=_tuple(reader.json("effective.json", list)),
        census=reader.json("census.json", dict),
        fusions=_tuple(reader.json("fusions.json", list)),
        checkpoints=_checkpoints(path),
        latest=_latest(path),
        missing=reader.missing,
        damaged=reader.damaged,
    )
    if len(reader.missing) == len(FILES):
        raise ReportError(f"{path} has none of {', '.join(FILES)}: it is no run directory")
    return run


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.missing: dict[str, str] = {}
        self.damaged: dict[str, str] = {}
        self.recipe_sha256: str | None = None

    def json(self, name: str, kind: type) -> Any:
        data = self._bytes(name)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except ValueError as error:
            self.damaged[name] = str(error)
            return None
        if not isinstance(found, kind):
            self.damaged[name] = f"holds {type(found).__name__}, not {kind.__name__}"
            return None
        return found

    def lines(self, name: str) -> tuple[dict[str, Any], ...]:
        data = self._bytes(name) or b""
        events, bad = [], 0
        for line in data.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                bad += 1
                continue
            if isinstance(event, dict):
                events.append(event)
        if bad:
            self.damaged[name] = f"{bad} of {len(data.splitlines())} lines are not complete"
        return tuple(events)

    def recipe(self) -> dict[str, Any]:
        data = self._bytes("recipe.yaml")
        if data is None:
            return {}
        self.recipe_sha256 = hashlib.sha256(data).hexdigest()
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            found = YAML(typ="safe", pure=True).load(data)
        except YAMLError as error:
            self.damaged["recipe.yaml"] = str(error).splitlines()[0]
            return {}
        return found if isinstance(found, dict) else {}

    def _bytes(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            self.missing[name] = FILES[name]
            return None


def flat(recipe: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a recipe, and their values."""
    found: dict[str, Any] = {}
    for key, value in recipe.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _tuple(found: list[Any] | None) -> tuple[Any, ...] | None:
    return None if found is None else tuple(item for item in found if isinstance(item, dict))


def _checkpoints(path: Path) -> tuple[str, ...]:
    return tuple(sorted(folder.name for folder in (path / "checkpoints").glob("iter_*")))


def _latest(path: Path) -> str | None:
    try:
        return (path / TRACKER).read_text("utf-8").strip()
    except FileNotFoundError:
        return None
