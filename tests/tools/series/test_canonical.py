# SPDX-License-Identifier: Apache-2.0
"""Formatting a range of commits as canonical patches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import FatalError
from mxtree.git import git, git_text
from mxtree.series.canonical import SEPARATOR, format_range

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git("init", "--quiet", tmp_path)
    for number in range(4):
        (tmp_path / "f").write_bytes(b"x\n" * number + b"\0" * (number > 2))
        git("add", "f", cwd=tmp_path)
        message = "Change\n\nFrom here\n>From there\n" + SEPARATOR.decode()
        git("commit", "--quiet", "--allow-empty", "-m", message, cwd=tmp_path)
    return tmp_path


def ids(repo: Path) -> list[str]:
    return git_text("rev-list", "--reverse", "HEAD", cwd=repo).split()


def test_a_range_is_split_into_the_files_that_git_writes(repo: Path, tmp_path: Path) -> None:
    commits = ids(repo)
    patches = format_range(repo, commits[0], commits[-1])
    assert len(patches) == 3
    alone = [format_range(repo, *pair)[0] for pair in pairwise(commits)]
    assert list(patches) == alone
    assert all(patch.startswith(SEPARATOR) for patch in patches)


def test_no_commits_are_no_patches(repo: Path) -> None:
    commits = ids(repo)
    assert format_range(repo, commits[1], commits[1]) == ()


def test_a_merge_is_refused(repo: Path) -> None:
    commits = ids(repo)
    tree = git_text("rev-parse", "HEAD^{tree}", cwd=repo)
    parents = ("-p", commits[2], "-p", commits[1])
    merge = git_text("commit-tree", tree, *parents, "-m", "merge", cwd=repo)
    with pytest.raises(FatalError, match="a merge has none"):
        format_range(repo, commits[0], merge)


def test_attributes_of_the_tree_do_not_change_the_words_of_a_hunk(repo: Path) -> None:
    """`diff=python` chooses the text behind @@, and differently in each version of git."""
    lines = [
        "class A:",
        "    x = 1",
        "    y = 2",
        "    z = 3",
        "    def g():",
        *["        p"] * 4,
        "",
    ]
    (repo / "f").write_text("\n".join([*lines, "        s\n"]))
    git("add", "f", cwd=repo)
    git("commit", "--quiet", "-m", "python", cwd=repo)
    (repo / "f").write_text((repo / "f").read_text().replace("        s\n", "        t\n"))
    git("commit", "--quiet", "-am", "change", cwd=repo)
    before, after = ids(repo)[-2:]
    plain = format_range(repo, before, after)
    (repo / ".gitattributes").write_text("f -diff\n")
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* -diff\n")
    assert format_range(repo, before, after) == plain
