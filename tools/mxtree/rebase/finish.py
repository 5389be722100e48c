# SPDX-License-Identifier: Apache-2.0
"""Write the result of a rebase into the project, and take that back again."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from mxtree import locks
from mxtree.edit.plan import listing
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.rebase.classify import new_patches
from mxtree.rebase.store import directory_digest, write_durably
from mxtree.rebase.work import Work
from mxtree.series import Patch
from mxtree.series.listing import SERIES_FILE
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.rebase.model import Rebase
    from mxtree.rebase.session import Session


def finish(session: Session) -> Path:
    """Write ``patches/<upstream>/<new version>/`` and move the pin; return the new directory.

    The new series is first applied to the new base and must give the very tree that the rebase
    arrived at; every old patch must be accounted for. Raises `FatalError` when patches wait, or
    when the directory exists.
    """
    store, project = session.store, session.project
    with locks.hold(store.folder):
        rebase = session.load()
        if rebase.status != "done":
            raise FatalError(
                f"the rebase of {rebase.upstream} is not done: {rebase.status}, "
                f"{rebase.position} of {len(rebase.steps)} patches",
                hint=f"mxtree rebase {rebase.upstream} --continue",
            )
        patches = new_patches(Work(store.work), rebase)
        rebase.check_complete(len(patches))
        _prove(store.work, rebase, patches)
        target = project.series_dir(rebase.upstream, rebase.new.version)
        before = project.series_dir(rebase.upstream, rebase.old.version) / SERIES_FILE
        stage = _stage_series(target, patches, listing(list(patches), before.read_bytes()))
        pins = project.upstreams_file.read_text(encoding="utf-8")
        moved = pins if rebase.keep_pin else _moved_pin(pins, project.upstreams_file, rebase)
        record = {
            "directory": str(target.relative_to(project.root)),
            "digest": directory_digest(stage),
            "pins_before": pins,
            "pins_after": moved,
        }
        # First what is needed to take everything back, then everything.
        write_durably(store.finished, json.dumps(record, indent=2).encode())
        _put_in_place(stage, target)
        if moved != pins:
            write_durably(project.upstreams_file, moved.encode())
        load_upstreams(project)
        store.clear()
    return target


def undo(session: Session) -> Path:
    """Take back the last `finish` of an upstream; return the directory that is gone.

    Raises `FatalError` when there is none, or when its files were changed since.
    """
    store, project = session.store, session.project
    with locks.hold(store.folder):
        if not store.finished.exists():
            raise FatalError(f"no finished rebase of {store.upstream} is on record")
        record = json.loads(store.finished.read_text(encoding="utf-8"))
        target = project.root / str(record["directory"])
        if target.is_dir() and directory_digest(target) != record["digest"]:
            raise _changed(target)
        now = project.upstreams_file.read_text(encoding="utf-8")
        if record["pins_after"] != record["pins_before"]:
            if now not in {record["pins_after"], record["pins_before"]}:
                raise _changed(project.upstreams_file)
            write_durably(project.upstreams_file, record["pins_before"].encode())
        if target.is_dir():
            shutil.rmtree(target)
        store.finished.unlink()
    return target


def _changed(path: Path) -> FatalError:
    return FatalError(
        f"{path} was changed since the rebase was finished, so it is not taken back",
        hint="use git in the project to undo what you want undone",
        code=ExitCode.CHECK_FAILED,
    )


def _prove(work: Path, rebase: Rebase, patches: Mapping[str, bytes]) -> None:
    series = [Patch(work / name, name[:4], name, raw) for name, raw in patches.items()]
    applied = apply_series(work, rebase.new.commit, series)
    wanted = Work(work).tree_of(rebase.tip)
    found = applied[-1].tree if applied else rebase.new.tree
    if found != wanted:
        raise FatalError(
            f"the new series gives tree {found[:12]}, the rebase arrived at {wanted[:12]}",
            hint="this is a defect of mxtree; nothing was written",
            code=ExitCode.COULD_NOT_CHECK,
        )


def _stage_series(target: Path, patches: Mapping[str, bytes], series: bytes) -> Path:
    stage = target.with_name(f".{target.name}.new")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for name, raw in patches.items():
        (stage / name).write_bytes(raw)
    (stage / SERIES_FILE).write_bytes(series)
    return stage


def _put_in_place(stage: Path, target: Path) -> None:
    if not target.exists():
        stage.rename(target)
        return
    is_same = directory_digest(target) == directory_digest(stage)
    shutil.rmtree(stage)
    if not is_same:
        raise FatalError(
            f"{target} exists already, with another series",
            hint="compare it with `mxtree report rebase`, remove or rename it, then --finish again",
        )


def _moved_pin(text: str, path: Path, rebase: Rebase) -> str:
    """Return the pins with the new version as default, if a release of it is pinned."""
    name, version = re.escape(rebase.upstream), rebase.new.version
    if f'[upstream.{rebase.upstream}.release."{version}"]' not in text:
        return text
    pattern = rf'(^\[upstream\.{name}\]\n(?:(?!\[).*\n)*?default = )"[^"]*"'
    moved, count = re.subn(pattern, rf'\g<1>"{version}"', text, flags=re.MULTILINE)
    if count != 1:
        raise FatalError(
            f"{path} has no line `default = ...` under [upstream.{rebase.upstream}]",
            hint=f'set default = "{version}" there by hand, and finish with --keep-pin',
        )
    return moved
