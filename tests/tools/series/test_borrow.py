# SPDX-License-Identifier: Apache-2.0
"""Private git directories on borrowed objects, and processes that are fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.git import GitError, git, git_text
from mxtree.series.borrow import BorrowedObjects

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    git("init", "--quiet", path)
    for number in range(3):
        git("commit", "--quiet", "--allow-empty", "-m", str(number), cwd=path)
    return path


def test_names_are_resolved_where_they_are_known(repo: Path) -> None:
    git("tag", "v1", cwd=repo)
    with BorrowedObjects(repo, "v1", "HEAD^") as private:
        assert private.resolved == (
            git_text("rev-parse", "HEAD", cwd=repo),
            git_text("rev-parse", "HEAD^", cwd=repo),
        )
        assert private.git("for-each-ref") == b""
    with pytest.raises(GitError), BorrowedObjects(repo, "nonsense"):
        pass


def test_objects_land_in_the_repository(repo: Path) -> None:
    with BorrowedObjects(repo) as private:
        oid = private.git("hash-object", "-w", "--stdin", stdin=b"new\n").decode().strip()
    assert git("cat-file", "blob", oid, cwd=repo) == b"new\n"


def test_a_linked_work_tree_borrows_from_its_repository(repo: Path, tmp_path: Path) -> None:
    git("worktree", "add", "--quiet", "--detach", tmp_path / "linked", cwd=repo)
    with BorrowedObjects(tmp_path / "linked", "HEAD") as private:
        assert private.git("cat-file", "-t", private.resolved[0]) == b"commit\n"


def test_a_shallow_repository_stays_shallow(repo: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git("clone", "--quiet", "--depth=1", f"file://{repo}", shallow)
    with BorrowedObjects(shallow, "HEAD") as private:
        assert private.git("rev-list", "--count", private.resolved[0]) == b"1\n"


def test_what_is_fed_is_done_at_the_end(repo: Path) -> None:
    with BorrowedObjects(repo, "HEAD") as private:
        feed = private.feed("fast-import", "--quiet")
        feed.write(b"reset refs/heads/x\nfrom %s\n\n" % private.resolved[0].encode())
        feed.finish()
        assert private.git("rev-parse", "refs/heads/x").decode().strip() == private.resolved[0]
        with pytest.raises(ValueError, match="is finished"):
            feed.write(b"more")


def test_a_feed_that_git_refuses_says_why(repo: Path) -> None:
    with BorrowedObjects(repo) as private:
        feed = private.feed("fast-import", "--quiet")
        feed.write(b"nonsense\n")
        with pytest.raises(GitError) as caught:
            feed.finish()
    assert any("nonsense" in line for line in caught.value.details)


def test_a_feed_that_git_left_says_why_while_writing(repo: Path) -> None:
    with BorrowedObjects(repo) as private:
        feed = private.feed("hash-object", "--no-such-option")
        with pytest.raises(GitError) as caught:
            for _ in range(1000):
                feed.write(b"x" * 100_000)
    assert any("no-such-option" in line for line in caught.value.details)


def test_an_abandoned_feed_is_quiet(repo: Path) -> None:
    with BorrowedObjects(repo) as private:
        feed = private.feed("fast-import", "--quiet")
        feed.write(b"nonsense\n")
        feed.abandon()
