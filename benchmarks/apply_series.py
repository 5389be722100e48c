# SPDX-License-Identifier: Apache-2.0
"""The engine against `git am` on a synthetic series of 400 patches, alternately in one run.

The series is made on a real release of megatron-core: mostly edits of one to three Python files in
one to three places, with a new file, a deletion, a rename, a mode bit or a binary file now and
then. Both sides read the same patch files and leave a work tree at the last commit. `git am` gets
all files at once and every setting that is known to speed it up. Trees and commits must be equal.

    python benchmarks/apply_series.py [--patches 400] [--rounds 7] [--release DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mxtree.engine import apply_series
from mxtree.engine.am import AM_OPTIONS
from mxtree.git import git, git_text
from mxtree.project import find_project
from mxtree.series import load_series
from mxtree.series.canonical import format_range
from mxtree.series.quoting import quote
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UPSTREAM, VERSION = "megatron-lm", "0.18.2"

#: The bar: share of the time of `git am`.
BAR = 0.5

FAST_AM = (
    *("-c", "core.fsync=none", "-c", "index.skipHash=true", "-c", "index.version=4"),
    *("-c", "gc.auto=0", "-c", "advice.mergeConflict=false"),
)

Tree = dict[bytes, tuple[int, bytes]]


class Row(NamedTuple):
    """A contestant and its seconds, one a round."""

    name: str
    seconds: list[float]


def main() -> int:
    """Measure, print the table, write it where asked; exit status 1 above the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--release", type=Path, help="an unpacked release instead of the cache's")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="apply-series-") as folder:
        scratch = Path(folder)
        base = _make_base(scratch / "base", options.release)
        _make_series(scratch / "base", base, scratch / "series", options.patches)
        rows = _measure(scratch, base, options.rounds)
        size = sum(path.stat().st_size for path in (scratch / "series").iterdir())
    table = _table(rows, options, size)
    print(table)
    if options.out:
        options.out.write_text(table, encoding="utf-8")
    return int(_median(rows[1]) > BAR * _median(rows[0]))


def _make_base(repo: Path, release: Path | None) -> str:
    """Make a bare repository that holds the release as one commit, and return that."""
    git("init", "--quiet", "--bare", "--template=", repo)
    if release is None:
        project = find_project()
        upstream = load_upstreams(project).get(UPSTREAM)
        imported = ensure_imported(project, upstream, VERSION, Source.parse("index"))
        git("fetch", "--quiet", "--no-tags", imported.repo, imported.commit, cwd=repo)
        return imported.commit
    place = ("--git-dir", repo, "--work-tree", release)
    git(*place, "add", "--all", "--force", ".")
    tree = git(*place, "write-tree").decode("ascii").strip()
    return git_text("commit-tree", tree, "-m", "Release", cwd=repo)


def _make_series(repo: Path, base: str, directory: Path, count: int) -> None:
    pick = random.Random(count)  # noqa: S311  a fixed seed: the same series in every run
    tree = _read_tree(repo, base)
    stream = [b"reset refs/heads/series\nfrom %s\n\n" % base.encode("ascii")]
    for number in range(count):
        before = dict(tree)
        _change(tree, number, pick)
        stream += _commit(before, tree, number)
    git("fast-import", "--quiet", "--force", cwd=repo, stdin=b"".join(stream))
    directory.mkdir()
    names = [f"{number:04d}-synthetic.patch" for number in range(1, count + 1)]
    raws = format_range(repo, base, git_text("rev-parse", "refs/heads/series", cwd=repo))
    for name, raw in zip(names, raws, strict=True):
        (directory / name).write_bytes(raw)
    (directory / "series").write_text("".join(f"{name}\n" for name in names))
    # The contestants clone this repository: it must not hold their results already.
    git("update-ref", "-d", "refs/heads/series", cwd=repo)
    git("update-ref", "refs/heads/main", base, cwd=repo)
    git("reflog", "expire", "--expire=now", "--all", cwd=repo)
    git("gc", "--quiet", "--prune=now", cwd=repo)


def _read_tree(repo: Path, commit: str) -> Tree:
    rows = git("ls-tree", "-r", "-z", commit, cwd=repo).split(b"\0")[:-1]
    found = [
        (row.split(b"\t", 1)[1], row.split(b" ")[0], row.split(b"\t")[0][-40:]) for row in rows
    ]
    request = b"".join(oid + b"\n" for _, _, oid in found)
    out, tree, at = git("cat-file", "--batch", cwd=repo, stdin=request), {}, 0
    for path, mode, _ in found:
        end = out.index(b"\n", at)
        size = int(out[at:end].rsplit(b" ", 1)[1])
        tree[path] = (int(mode, 8), out[end + 1 : end + 1 + size])
        at = end + size + 2
    return tree


def _change(tree: Tree, number: int, pick: random.Random) -> None:
    """Change the tree in place as one patch of the series does."""
    python = sorted(
        path for path in tree if path.endswith(b".py") and tree[path][1].count(b"\n") > 30
    )
    for path in pick.sample(python, pick.choice((1, 1, 1, 2, 3))):
        mode, content = tree[path]
        tree[path] = (mode, _edit(content, number, pick))
    path = pick.choice(python)
    if number % 20 == 0:
        tree[b"megatron/extra/new_%d.py" % number] = (0o100644, b"X = %d\n" % number * 40)
    elif number % 20 == 5:
        tree[b"megatron/moved/%d.py" % number] = tree.pop(path)
    elif number % 20 == 10:
        tree[path] = (0o100755, tree[path][1])
    elif number % 20 == 15:
        data = bytes((i * number) % 251 for i in range(3000))
        tree[b"megatron/extra/data.bin"] = (0o100644, data)
    elif number % 100 == 99:
        del tree[path]


def _edit(content: bytes, number: int, pick: random.Random) -> bytes:
    lines = content.split(b"\n")
    for _ in range(pick.choice((1, 1, 2, 3))):
        at = pick.randrange(3, len(lines) - 3)
        kind = pick.random()
        if kind < 0.5:
            lines.insert(at, b"    # synthetic %d" % number)
        elif kind < 0.8:
            lines[at] += b"  # synthetic %d" % number
        else:
            del lines[at]
    return b"\n".join(lines)


def _commit(before: Tree, after: Tree, number: int) -> Iterator[bytes]:
    who = b"Ada L <ada@example.org> %d +0000" % (1796083200 + number)
    message = b"Synthetic change %d\n\nDescription: one of many\n and no more\n" % number
    yield b"commit refs/heads/series\nauthor %s\ncommitter %s\n" % (who, who)
    yield b"data %d\n%s" % (len(message), message)
    for path in before.keys() - after.keys():
        yield b"D %s\n" % quote(path)
    for path, (mode, content) in after.items():
        if before.get(path) != (mode, content):
            yield b"M %o inline %s\ndata %d\n%s\n" % (mode, quote(path), len(content), content)


def _measure(scratch: Path, base: str, rounds: int) -> list[Row]:
    rows = [Row("`git am`", []), Row("mxtree", []), Row("mxtree, commits only", [])]
    contestants = (_git_am, _engine, _engine_without_work_tree)
    for turn in range(rounds):
        results = set()
        for row, contestant in zip(rows, contestants, strict=True):
            work = scratch / f"{turn}-{contestant.__name__}"
            git("clone", "--quiet", "--local", "--no-checkout", scratch / "base", work)
            git("checkout", "--quiet", "-b", "result", base, cwd=work)
            row.seconds.append(_timed(lambda: contestant(work, base, scratch / "series")))  # noqa: B023
            head = "refs/heads/result"
            results.add(git_text("log", "-1", "--format=%H %T", head, cwd=work))
        if len(results) != 1:
            raise SystemExit(f"the results differ: {sorted(results)}")
    return rows


def _timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _git_am(work: Path, _: str, series: Path) -> None:
    names = (series / "series").read_text().split()
    files = [series / name for name in names]
    git(*FAST_AM, "am", "--quiet", *AM_OPTIONS, "--no-3way", *files, cwd=work)


def _engine(work: Path, base: str, series: Path) -> None:
    applied = apply_series(work, base, load_series(series).patches)
    git("reset", "--quiet", "--hard", applied[-1].commit, cwd=work)


def _engine_without_work_tree(work: Path, base: str, series: Path) -> None:
    applied = apply_series(work, base, load_series(series).patches)
    git("update-ref", "refs/heads/result", applied[-1].commit, cwd=work)


def _median(row: Row) -> float:
    return statistics.median(row.seconds)


def _table(rows: list[Row], options: argparse.Namespace, size: int) -> str:
    reference = rows[0]
    lines = [
        "| what | median s | min s | max s | ratio of medians | of minima |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        median, low, high = _median(row), min(row.seconds), max(row.seconds)
        ratios = f"{median / _median(reference):.2f} | {low / min(reference.seconds):.2f}"
        lines.append(f"| {row.name} | {median:.2f} | {low:.2f} | {high:.2f} | {ratios} |")
    python = sys.version.split()[0]
    machine = f"{os.cpu_count()} cores, Python {python}, {git('--version').decode().strip()}"
    command = f"python benchmarks/apply_series.py --patches {options.patches}"
    return "\n".join(
        [
            "# Applying a long series",
            "",
            f"{options.patches} patches ({size / 1e6:.1f} MB) on {UPSTREAM} {VERSION}.",
            "Each side starts at a work tree of the release and leaves one at the last commit.",
            f"Trees and commit ids are equal. The bar is {BAR} of `git am`.",
            "",
            *lines,
            "",
            f"`{command} --rounds {options.rounds}`, {time.strftime('%Y-%m-%d')}, {machine}.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
