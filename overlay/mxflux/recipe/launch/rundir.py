# SPDX-License-Identifier: Apache-2.0
"""The directory of a run: made whole or not at all, and gone on with only by the same recipe."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from mxflux.recipe import RecipeError, load
from mxflux.recipe.dump import dump
from mxflux.recipe.launch import progress, record
from mxflux.recipe.launch.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mxflux.recipe import Loaded, Recipe

RECIPE = "recipe.yaml"

#: Keys (or sections) that may differ when a run goes on: they change no number that is trained.
OPERATIONAL = (
    "checkpoint.async_save",
    "checkpoint.keep",
    "checkpoint.save_final",
    "checkpoint.save_interval",
    "description",
    "launch.master_port",
    "launch.max_restarts",
    "launch.slurm",
    "logging",
    "probes",
    "schedule.exit_duration_in_mins",
    "schedule.exit_interval",
)
_ABSENT = "(not there)"


@dataclass(frozen=True)
class Start:
    """How a run starts: new, resumed after ``step`` (None: no checkpoint yet), or not at all."""

    kind: Literal["new", "resume", "finished"]
    step: int | None = None
    notes: tuple[str, ...] = ()


def recipe_sha256(loaded: Loaded) -> str:
    """Return the sha256 of recipe.yaml, by which checkpoints and reports name the recipe."""
    return hashlib.sha256(loaded.dump_resolved()).hexdigest()


def examine(run: Path, loaded: Loaded, tree_digest: str | None, *, resume: bool) -> Start:
    """Return how ``loaded`` would start in ``run``; changes nothing.

    Raises LaunchError when the folder is of another recipe, naming the keys, or was trained with
    another tree, unless ``resume`` asks for that.
    """
    if not run.exists() or (run.is_dir() and not any(run.iterdir())):
        if resume:
            raise LaunchError(f"--resume: there is no run in {run}", hint="leave out --resume")
        return Start("new")
    found = record.read(run)
    serious, harmless = _differences(run, loaded.recipe)
    if serious:
        raise LaunchError(
            f"{run} is a run of another recipe, and its checkpoints are not of this one",
            details=[f"{line}" for line in serious],
            hint="name another folder (--run-dir), give the run another name (name=...), or "
            "--fresh moves the old one aside",
        )
    notes = [f"changed since the last attempt: {line}" for line in harmless]
    notes += _other_tree(run, found, tree_digest, resume=resume)
    if found["status"] == "finished" and not harmless:
        return Start("finished", progress.checkpointed_step(run))
    return Start("resume", progress.checkpointed_step(run), tuple(notes))


def _other_tree(
    run: Path, found: Mapping[str, Any], digest: str | None, *, resume: bool
) -> Iterator[str]:
    used = [found.get("tree_digest"), *(a.get("tree_digest") for a in found["attempts"])]
    before = next((value for value in reversed(used) if value), None)
    if digest is None or before in (None, digest):
        return
    change = f"tree {str(before)[:12]} -> {digest[:12]}"
    if not resume:
        raise LaunchError(
            f"{run} was trained with another tree: {change}",
            hint="--resume goes on with this one and records it; --fresh starts anew",
        )
    yield f"goes on with another {change}"


def create(run: Path, loaded: Loaded, facts: Mapping[str, Any]) -> None:
    """Make ``run`` with recipe.yaml and run.json; it appears complete, or not at all.

    Relative paths in the recipe are from here, also when the run goes on from elsewhere.
    """
    partial = run.with_name(f".{run.name}.partial-{os.getpid()}")
    try:
        run.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        (partial / RECIPE).write_bytes(loaded.dump_resolved())
        (partial / "logs").mkdir()
        identity = {
            "format": record.FORMAT,
            "name": loaded.recipe.name,
            "recipe_sha256": recipe_sha256(loaded),
            "device": loaded.recipe.device,
            "cwd": str(Path.cwd()),
        }
        record.write(partial, {**identity, **facts, "attempts": [], "status": "new"})
        partial.rename(run)
    except OSError as error:
        raise LaunchError(f"{run} cannot be made: {error}", code=3) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def adopt(run: Path, loaded: Loaded) -> None:
    """Let ``run`` go on with the harmless changes of ``loaded``; the old recipe stays beside it.

    Without any, recipe.yaml stays as it is: where a value was written this time is no change.
    """
    path = run / RECIPE
    if not any(_differences(run, loaded.recipe)):
        return
    found = record.read(run)
    path.replace(run / f"recipe.until-attempt-{len(found['attempts'])}.yaml")
    partial = run / f".{RECIPE}.partial"
    partial.write_bytes(loaded.dump_resolved())
    partial.replace(path)
    found["recipe_sha256"] = recipe_sha256(loaded)
    record.write(run, found)


def move_aside(run: Path) -> Path:
    """Rename an existing run to the first free ``<name>.old-N`` and return where it is now."""
    number = 1
    while (target := run.with_name(f"{run.name}.old-{number}")).exists():
        number += 1
    run.rename(target)
    return target


def _differences(run: Path, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return the keys that differ between the run's recipe and ``recipe``: serious, harmless."""
    before, after = _values(_recorded(run / RECIPE), run / RECIPE), _values(dump(recipe))
    serious: list[str] = []
    harmless: list[str] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if old != new:
            listed = harmless if _is_operational(key) else serious
            listed.append(f"{key}: {_show(old)} -> {_show(new)}")
    return serious, harmless


def _recorded(path: Path) -> bytes:
    """Return a run's recipe, with the defaults of keys that are newer than the run.

    A recipe that the schema no longer takes is compared as it stands.
    """
    try:
        return dump(load(path, environ={}).recipe)
    except RecipeError:
        return path.read_bytes()


def _is_operational(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in OPERATIONAL)


def _show(value: object) -> str:
    return "null" if value is None else str(value)


def _values(text: bytes, path: Path | None = None) -> dict[str, Any]:
    """Return every value of a resolved recipe by its dotted key, whatever schema it is of."""
    try:
        tree = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise LaunchError(f"{path} is damaged: {error}") from error
    return dict(_flat(tree, ""))


def _flat(node: object, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from _flat(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, node
