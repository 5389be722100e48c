# SPDX-License-Identifier: Apache-2.0
"""`mxtree build` with a warm cache against its floor, alternately in one run.

The floor is what nobody could leave out by hand: for each upstream one ``git worktree add`` and
one ``git am`` of the same series, and one recursive copy of the overlay and the recipes. It proves
nothing, cannot be moved and stays half done when a patch fails.

    python benchmarks/build_tree.py [--rounds 9] [--out docs/results/build-tree.md]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.git import git
from mxtree.project import find_project
from mxtree.series import load_series
from mxtree.tree.build import FOLDERS
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxtree.project import Project
    from mxtree.upstreams import Imported

#: The flags that let `git am` reproduce our commits; see docs/reference/patch-format.md.
AM = ("am", "--quiet", "--patch-format=mboxrd", "--keep", "--keep-cr", "--no-scissors")


def main() -> None:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    project = find_project()
    upstreams = load_upstreams(project)
    imported = [
        ensure_imported(project, upstream, upstream.default, Source.parse("index"))
        for upstream in map(upstreams.get, upstreams.names)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        table = _measure(project, imported, Path(scratch), options.rounds)
    print(table)
    if options.out:
        options.out.write_text(table, encoding="utf-8")


def _measure(project: Project, imported: list[Imported], scratch: Path, rounds: int) -> str:
    floor, ours = [], []
    for turn in range(rounds):
        floor.append(_timed(partial(_by_hand, project, imported, scratch / "floor")))
        heads = {item.upstream: _head(scratch / "floor" / item.upstream) for item in imported}
        _remove_worktrees(imported, scratch / "floor")
        out = scratch / f"tree{turn}"
        ours.append(_timed(partial(_by_mxtree, out)))
        assert heads == {item.upstream: _head(out / item.upstream) for item in imported}
        shutil.rmtree(out)
    return _table(floor, ours, rounds)


def _timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _by_hand(project: Project, imported: list[Imported], out: Path) -> None:
    for item in imported:
        work = out / item.upstream
        git("worktree", "add", "--quiet", "--detach", work, item.commit, cwd=item.repo)
        series = load_series(project.series_dir(item.upstream, item.version))
        git(*AM, "--committer-date-is-author-date", *(p.path for p in series.patches), cwd=work)
    for name in FOLDERS:
        if (project.root / name).is_dir():
            shutil.copytree(project.root / name, out / name)


def _by_mxtree(out: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "mxtree", "build", "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"MXTREE_OFFLINE": "1"},
    )


def _head(repository: Path) -> str:
    return git("rev-parse", "HEAD^{tree}", cwd=repository).decode().strip()


def _remove_worktrees(imported: list[Imported], out: Path) -> None:
    for item in imported:
        git("worktree", "remove", "--force", out / item.upstream, cwd=item.repo)
    shutil.rmtree(out)


def _table(floor: list[float], ours: list[float], rounds: int) -> str:
    by_hand, mxtree = statistics.median(floor), statistics.median(ours)
    rows = [
        ("floor: worktree add + am + copy", by_hand, min(floor), max(floor), 1.0),
        ("mxtree build, cache warm", mxtree, min(ours), max(ours), mxtree / by_hand),
    ]
    lines = ["| what | median s | min s | max s | ratio |", "|---|---|---|---|---|"]
    lines += [f"| {n} | {m:.2f} | {lo:.2f} | {hi:.2f} | {r:.2f} |" for n, m, lo, hi, r in rows]
    host = f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {git('--version').decode()}"
    date = time.strftime("%Y-%m-%d")
    command = f"`python benchmarks/build_tree.py --rounds {rounds}`"
    return "\n".join(
        ["# mxtree build against its floor", "", *lines, "", f"{command}, {date}, {host}"]
    )


if __name__ == "__main__":
    main()
