# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for repositories: every kind of change that a patch can carry."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from mxtree.git import git
from mxtree.series.quoting import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE, EXECUTABLE, SYMLINK = 0o100644, 0o100755, 0o120000

Tree = dict[bytes, tuple[int, bytes]]

PATHS = (
    *(b"a", b"b.py", b"core/a.py", b"core/b.py", b"core/deep/er/c", b"new/d", b"-x", b"a b"),
    *(b"trailing ", b" leading", b"dir with space/f", b'quo"te', b"back\\slash", b"tab\there"),
    *(b"line\nfeed", b"caf\xc3\xa9", b"latin\xe9", b"a/b/a/b", b"b/a b/b", b"CASE", b"case"),
)

#: Few different lines, so that contexts repeat and offsets are ambiguous.
LINES = (
    *(b"", b"x", b"  x", b"y\r", b"return", b"-- ", b"--- a", b"+++ b", b"@@ -1 +1 @@"),
    *(b"diff --git a/a b/a", b"From x Mon Sep 17 00:00:00 2001", b"\\ No newline at end of file"),
    *(b"\xff\xfe", b"\x0c", b"}"),
)

SUBJECTS = (
    *("Change a thing", "[PERF] keep the tag", "Re: [PATCH] not a mail", "trailing dot.", "x"),
    *(
        "a subject that is so long that git folds it into two header lines, " * 2,
        "caf\u00e9 \u2603",
    ),
    *("two\nlines", "=?utf-8?q?looks=20encoded?=", "tabs\tinside", "From here to there"),
)

BODIES = (
    *("", "Description: why\n continued\nOrigin: vendor", "> quoted", "From the start\n>From more"),
    *(
        "caf\u00e9",
        "-- >8 -- scissors",
        "\n\n\nmany blank\n\n\n\nlines\n\n",
        "Signed-off-by: A <a@b>",
    ),
    *("trailing blanks   \n\ttab first", "----", "-- ", "---x"),
)

AUTHORS = ("Ada L <ada@example.org>", "\u674e\u660e Wang <li@example.org>", "O'Neil, Sam <s@x.y>")
ZONES = ("+0000", "-0730", "+0545")


@dataclass(frozen=True)
class Commit:
    """A commit to be: its whole tree, message and author."""

    tree: Tree
    message: str
    author: str
    date: str


lines = st.lists(st.sampled_from(LINES), max_size=24)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Return file content: lines, mostly with an end at the last."""
    content = b"".join(line + b"\n" for line in draw(lines))
    return content.removesuffix(b"\n") if draw(st.integers(0, 3)) == 0 else content


binaries = st.builds(
    lambda seed, size: bytes((seed * i * i + i) % 256 for i in range(size)),
    st.integers(1, 7),
    st.sampled_from([1, 5, 60, 4000]),
)
contents = st.one_of(texts(), texts(), binaries, st.just(b""))


@st.composite
def edits(draw: st.DrawFn, content: bytes) -> bytes:
    """Return the content with some lines inserted, deleted or replaced."""
    rows = content.split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(rows)))
        end = min(len(rows), at + draw(st.integers(0, 2)))
        rows[at:end] = draw(st.lists(st.sampled_from(LINES), max_size=2))
    return b"\n".join(rows)


def _fits(tree: Tree, path: bytes) -> bool:
    """Return whether ``path`` clashes with no folder or file of the tree."""
    above = [path[:i] for i in range(len(path)) if path[i : i + 1] == b"/"]
    below = any(found.startswith(path + b"/") for found in tree)
    return path not in tree and not below and not any(folder in tree for folder in above)


@st.composite
def changes(draw: st.DrawFn, before: Tree) -> Tree:
    """Return the tree after one to three changes of any kind."""
    tree = dict(before)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        free = [path for path in PATHS if _fits(tree, path)]
        if kind in {"add", "link"} or not tree:
            if free:
                path = draw(st.sampled_from(free))
                mode = draw(st.sampled_from([FILE, FILE, EXECUTABLE]))
                is_link = kind == "link"
                tree[path] = (SYMLINK, b"a/target") if is_link else (mode, draw(contents))
            continue
        _change_one(draw, tree, kind, draw(st.sampled_from(sorted(tree))), free)
    return tree


KINDS = (
    "edit",
    "edit",
    "edit",
    "add",
    "delete",
    "rename",
    "copy",
    "mode",
    "link",
    "type",
    "rewrite",
)


def _change_one(draw: st.DrawFn, tree: Tree, kind: str, path: bytes, free: list[bytes]) -> None:
    mode, content = tree[path]
    if kind == "delete":
        del tree[path]
    elif kind == "type":
        is_link = mode == SYMLINK
        tree[path] = (FILE, draw(contents)) if is_link else (SYMLINK, b"else/where")
    elif kind == "mode" and mode != SYMLINK:
        tree[path] = (FILE if mode == EXECUTABLE else EXECUTABLE, content)
    elif kind in {"rename", "copy"} and free:
        if kind == "rename":
            del tree[path]
        new = content if draw(st.booleans()) or mode == SYMLINK else draw(edits(content))
        tree[draw(st.sampled_from(free))] = (mode, new)
    elif mode != SYMLINK:
        tree[path] = (mode, draw(contents) if kind == "rewrite" else draw(edits(content)))


@st.composite
def histories(draw: st.DrawFn) -> list[Commit]:
    """Return a base commit and one to five on top of it."""
    tree: Tree = {}
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=2, max_size=7, unique=True)):
        if _fits(tree, path):
            tree[path] = (draw(st.sampled_from([FILE, FILE, EXECUTABLE])), draw(contents))
    commits = [Commit(tree, "Base", AUTHORS[0], "1796083200 +0000")]
    for number in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 9)):
            tree = draw(changes(tree))
        message = f"{draw(st.sampled_from(SUBJECTS))}\n\n{draw(st.sampled_from(BODIES))}"
        date = f"{1796083200 + number} {draw(st.sampled_from(ZONES))}"
        commits.append(Commit(tree, message, draw(st.sampled_from(AUTHORS)), date))
    return commits


@contextlib.contextmanager
def repository(commits: list[Commit]) -> Iterator[tuple[Path, list[str]]]:
    """Yield a bare repository with the commits, and their ids."""
    folder = Path(tempfile.mkdtemp(prefix="history-"))
    try:
        git("init", "--quiet", "--bare", "--template=", folder)
        git("fast-import", "--quiet", cwd=folder, stdin=b"".join(stream(commits)))
        ids = git("rev-list", "--reverse", "main", cwd=folder).decode("ascii").split()
        yield folder, ids
    finally:
        shutil.rmtree(folder)


def stream(commits: list[Commit]) -> Iterator[bytes]:
    """Yield the commits for fast-import, one on the other."""
    for commit in commits:
        message = commit.message.encode()
        who = f"{commit.author} {commit.date}".encode()
        yield b"commit refs/heads/main\nauthor %s\ncommitter %s\n" % (who, who)
        yield b"data %d\n%s\ndeleteall\n" % (len(message), message)
        for path, (mode, content) in commit.tree.items():
            yield b"M %o inline %s\ndata %d\n%s\n" % (mode, quote(path), len(content), content)
