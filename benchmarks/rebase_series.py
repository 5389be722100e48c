# SPDX-License-Identifier: Apache-2.0
"""`mxtree rebase` and `mxtree export --check` of 400 patches against git's own commands.

A synthetic series on a real release of megatron-core is carried to the next real release, without
conflicts: each patch inserts a line, at a place that both releases share, into a file that upstream
changed in between or left alone. In one run, alternately:

- rebase: the walk of `mxtree rebase` against ``git rebase --onto`` of the same commits; the trees
  must be equal;
- export: `mxtree export --check` against one ``git format-patch`` of the range.

    python benchmarks/rebase_series.py [--patches 400] [--rounds 3] [--out FILE]
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.edit.export import plan_exports
from mxtree.git import git, git_text
from mxtree.project import Project, find_project
from mxtree.rebase.session import Request, canonical_series, prepare
from mxtree.rebase.walk import Walk
from mxtree.rebase.work import Work
from mxtree.series.canonical import FORMAT_PATCH, format_range
from mxtree.tree import repository
from mxtree.tree.build import BuildRequest, build
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mxtree.upstreams import Imported

UPSTREAM, OLD, NEW = "megatron-lm", "0.18.2", "0.19.2"


def main() -> None:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    real = find_project()
    upstream = load_upstreams(real).get(UPSTREAM)
    ends = [
        ensure_imported(real, upstream, version, Source.parse("index")) for version in (OLD, NEW)
    ]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        project = _project(real, scratch, ends, options.patches)
        request = Request(load_upstreams(project).get(UPSTREAM), ends[0], ends[1])
        rows = [*_rebase(project, request, scratch, options.rounds)]
        rows += _export(project, scratch, options.rounds)
    table = _table(rows, options)
    print(table)
    if options.out:
        options.out.write_text(table, encoding="utf-8")


def _project(real: Project, scratch: Path, ends: list[Imported], count: int) -> Project:
    """Make a project whose series for OLD is the synthetic one."""
    root = scratch / "project"
    shutil.copytree(real.patches, root / "patches")
    shutil.rmtree(root / "patches" / UPSTREAM / OLD)
    work = scratch / "author"
    repository.create(work, ends[0].repo)
    git("reset", "--quiet", "--hard", ends[0].commit, cwd=work)
    for number, (path, text) in enumerate(_changes(work, ends, count), 1):
        (work / path).write_text(text, encoding="utf-8")
        git("commit", "--quiet", "--all", "-m", f"Insert line {number}", cwd=work)
    raw = format_range(work, ends[0].commit, git_text("rev-parse", "HEAD", cwd=work))
    directory = root / "patches" / UPSTREAM / OLD
    directory.mkdir(parents=True)
    names = [f"{number:04}-Insert-line-{number}.patch" for number in range(1, count + 1)]
    for name, data in zip(names, raw, strict=True):
        (directory / name).write_bytes(data)
    (directory / "series").write_text("".join(f"{name}\n" for name in names))
    return Project(root)


def _changes(work: Path, ends: list[Imported], count: int) -> Iterator[tuple[str, str]]:
    """Yield path and new text of each patch, half of them in files that differ between releases."""
    pick = random.Random(1)  # noqa: S311  a fixed seed: the same series in every run
    options = (
        "diff",
        "--name-only",
        "--diff-filter=M",
        "--no-renames",
        ends[0].commit,
        ends[1].commit,
    )
    changed = [p for p in git(*options, cwd=work).decode().split("\n") if p.endswith(".py")]
    same = sorted(
        set(_python_files(work))
        - set(git(*options[:2], *options[3:], cwd=work).decode().split("\n"))
    )
    places = {path: _common_lines(ends, path) for path in changed}
    made = 0
    while made < count:
        path = pick.choice(changed if made % 2 else same)
        lines = (work / path).read_text(encoding="utf-8").splitlines(keepends=True)
        choices = places.get(path, lines)
        anchors = [i for i, line in enumerate(lines) if line in choices and len(line) > 30]
        anchors = [i for i in anchors if lines.count(lines[i]) == 1 and 5 < i < len(lines) - 5]
        if not anchors:
            continue
        at = pick.choice(anchors)
        lines.insert(at, f"# synthetic {made}\n")
        made += 1
        yield path, "".join(lines)


def _python_files(work: Path) -> list[str]:
    return [p for p in git("ls-files", cwd=work).decode().split("\n") if p.endswith(".py")]


def _common_lines(ends: list[Imported], path: str) -> set[str]:
    """Return lines in the middle of long stretches that the two releases share."""
    sides = [git("show", f"{end.commit}:{path}", cwd=end.repo).decode() for end in ends]
    old, new = (side.splitlines(keepends=True) for side in sides)
    found: set[str] = set()
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        found |= set(old[block.a + 8 : max(block.a + block.size - 8, block.a + 8)])
    return {line for line in found if old.count(line) == 1 and new.count(line) == 1}


def _rebase(
    project: Project, request: Request, scratch: Path, rounds: int
) -> Iterator[tuple[str, list[float]]]:
    ours, theirs = [], []
    for turn in range(rounds):
        work = scratch / f"work{turn}"
        rebase = prepare(project, work, request)
        old = canonical_series(work, rebase)
        plain = scratch / f"plain{turn}"
        Work.create(plain, [work / ".git"], request.old.commit)
        tip = rebase.steps[-1].old_commit
        args = ("rebase", "--quiet", "--onto", request.new.commit, request.old.commit, tip)
        theirs.append(_timed(lambda a=args, p=plain: git(*a, cwd=p)))
        done = []
        walk = Walk(Work(work), old, lambda _: None)
        ours.append(_timed(lambda w=walk, r=rebase, d=done: d.append(w.run(r))))
        expected = git_text("rev-parse", "HEAD^{tree}", cwd=plain)
        assert git_text("rev-parse", f"{done[0].tip}^{{tree}}", cwd=work) == expected
        assert done[0].status == "done"
        shutil.rmtree(work)
        shutil.rmtree(plain)
    yield "git rebase --onto", theirs
    yield "mxtree rebase", ours


def _export(project: Project, scratch: Path, rounds: int) -> Iterator[tuple[str, list[float]]]:
    out = scratch / "tree"
    manifest = build(project, BuildRequest(out)).manifest
    record = manifest.upstreams[UPSTREAM]
    ours, theirs = [], []
    for _ in range(rounds):
        span = f"{record.base_commit}..{record.head_commit}"
        theirs.append(
            _timed(
                lambda s=span: git("format-patch", *FORMAT_PATCH, "--stdout", s, cwd=out / UPSTREAM)
            )
        )
        ours.append(_timed(lambda: _check(project, out)))
    yield "git format-patch", theirs
    yield "mxtree export --check", ours


def _check(project: Project, out: Path) -> None:
    assert all(item.plan.is_clean for item in plan_exports(project, out, [UPSTREAM]))


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _table(rows: list[tuple[str, list[float]]], options: argparse.Namespace) -> str:
    lines = ["| what | median s | min s | max s | ratio to git |", "|---|---|---|---|---|"]
    for index, (name, times) in enumerate(rows):
        median, base = statistics.median(times), statistics.median(rows[index - index % 2][1])
        row = (
            f"| {name} | {median:.2f} | {min(times):.2f} | {max(times):.2f} | {median / base:.2f} |"
        )
        lines.append(row)
    title = f"# {options.patches} patches: rebase from {UPSTREAM} {OLD} to {NEW}, and export"
    given = f"--patches {options.patches} --rounds {options.rounds}"
    command = f"`python benchmarks/rebase_series.py {given}`"
    version = git("--version").decode().strip()
    host = f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {version}"
    return "\n".join([title, "", *lines, "", f"{command}, {time.strftime('%Y-%m-%d')}, {host}", ""])


if __name__ == "__main__":
    main()
