# SPDX-License-Identifier: Apache-2.0
"""What the engine does not read itself goes through git, with git's result."""

from __future__ import annotations

import base64
import quopri
from typing import TYPE_CHECKING

import pytest
from git_am_reference import git_am
from small_repo import BASE, LINES, SmallRepo, edited

from mxtree.engine import ConflictError, Fit
from mxtree.engine.am import AmSession
from mxtree.errors import FatalError
from mxtree.git import git, git_text
from mxtree.series import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = b"core/numbers.py"


def reencoded(raw: bytes, name: bytes, encode: Callable[[bytes], bytes]) -> bytes:
    head, _, body = raw.partition(b"\n\n")
    return b"%s\nContent-Transfer-Encoding: %s\n\n%s" % (head, name, encode(body))


MAILS: dict[str, Callable[[bytes], bytes]] = {
    "base64 body": lambda raw: reencoded(raw, b"base64", base64.encodebytes),
    "quoted-printable body": lambda raw: reencoded(raw, b"quoted-printable", quopri.encodestring),
    "latin-1 header": lambda raw: raw.replace(b"Subject: ", b"Subject: =?iso-8859-1?q?caf=E9?= "),
    "latin-1 body": lambda raw: raw.replace(
        b"\n\n", b"\nContent-Type: text/plain; charset=latin1\n\nd\xe9j\xe0 vu\n", 1
    ),
    "in-body subject": lambda raw: raw.replace(b"\n\n", b"\n\nSubject: other\n\n", 1),
    "in-body author": lambda raw: raw.replace(b"\n\n", b"\n\nFrom: Bob B <b@example.org>\n\n", 1),
    "no separator": lambda raw: raw.partition(b"\n")[2],
    "another separator": lambda raw: (
        b"From ada@x Mon Sep 17 00:00:00 2001\n" + raw.partition(b"\n")[2]
    ),
    "header twice": lambda raw: raw.replace(b"Subject: ", b"Subject: first\nSubject: ", 1),
    "another date": lambda raw: raw.replace(b"Tue, 1 Dec 2026 00:00:00", b"2026-12-01 00:00:00"),
    "name in parentheses": lambda raw: raw.replace(b"Ada L <ada@example.org>", b"ada@x.org (Ada)"),
    "long name": lambda raw: raw.replace(b"Ada L <", b"Ada " * 20 + b"L <"),
    "traditional diff": lambda raw: raw.replace(b"diff --git a/", b"Index: "),
    "no index line": lambda raw: b"".join(
        line for line in raw.splitlines(keepends=True) if not line.startswith(b"index ")
    ),
    "junk between files": lambda raw: raw.replace(b"diff --git", b"some remark\ndiff --git"),
}


@pytest.mark.parametrize("name", MAILS)
def test_any_mail_gives_the_commit_of_git_am(small: SmallRepo, name: str) -> None:
    patch = small.patches({NUMBERS: edited((5, b"five\n")), b"empty": b"full\n"})[0]
    raw = MAILS[name](patch.raw)
    assert raw != patch.raw
    applied = small.apply([Patch(patch.path, patch.id, patch.name, raw)])
    made, said = git_am(small.path, small.base, [raw])
    assert [(item.commit, item.tree) for item in applied] == made, said


def test_git_and_memory_take_turns(small: SmallRepo) -> None:
    patches = small.patches(
        *({NUMBERS: edited(*((n, b"%d!\n" % n) for n in range(1, last)))} for last in range(2, 8))
    )
    for number in (1, 2, 4):
        patch = patches[number]
        raw = reencoded(patch.raw, b"base64", base64.encodebytes)
        patches[number] = Patch(patch.path, patch.id, patch.name, raw)
    applied = small.apply(patches)
    fits = [item.fit for item in applied]
    assert fits == [Fit.EXACT, Fit.GIT, Fit.GIT, Fit.EXACT, Fit.GIT, Fit.EXACT]
    made, said = git_am(small.path, small.base, [patch.raw for patch in patches])
    assert [(item.commit, item.tree) for item in applied] == made, said


def test_a_file_keeps_its_content_when_it_is_moved_after_git_had_a_turn(small: SmallRepo) -> None:
    """Each turn of git ends a fast-import stream; the numbers of blobs begin anew in the next."""
    body = b"".join(b"line %d\n" % number for number in range(20))
    patches = small.patches(
        {b"made": body},
        {b"empty": b"git's\n"},
        {b"made": None, b"moved": body, NUMBERS: edited((3, b"three\n"))},
        {b"moved": None, b"again": body},
    )
    raw = reencoded(patches[1].raw, b"base64", base64.encodebytes)
    patches[1] = Patch(patches[1].path, patches[1].id, patches[1].name, raw)
    applied = small.apply(patches)
    assert [item.fit for item in applied] == [Fit.EXACT, Fit.GIT, Fit.EXACT, Fit.EXACT]
    assert small.read(applied, "again") == body
    made, said = git_am(small.path, small.base, [patch.raw for patch in patches])
    assert [(item.commit, item.tree) for item in applied] == made, said


def test_two_mails_in_one_file_are_refused(small: SmallRepo) -> None:
    first, second = small.patches({b"empty": b"1\n"}, {b"empty": b"2\n"})
    both = Patch(first.path, first.id, first.name, first.raw + second.raw)
    with pytest.raises(ConflictError) as caught:
        small.apply([both])
    assert "it would become 2 commits instead of one" in caught.value.details


def test_lines_beyond_the_count_of_a_hunk_are_refused(small: SmallRepo) -> None:
    """git drops them without a word; `git am` exits 0."""
    (patch,) = small.patches({NUMBERS: b"".join([*LINES, b"one\n", b"two\n"])})
    raw = patch.raw.replace(b" +38,5 @@", b" +38,4 @@")
    assert raw != patch.raw
    assert len(git_am(small.path, small.base, [raw])[0]) == 1
    with pytest.raises(FatalError, match=r"0001-change\.patch:16: the hunk above is longer than"):
        small.apply([Patch(patch.path, patch.id, patch.name, raw)])


@pytest.mark.parametrize("name", ["Acme Inc.", "Li"])
def test_an_author_survives_whatever_the_version_of_git_makes_of_it(
    small: SmallRepo, name: str
) -> None:
    (patch,) = small.patches({NUMBERS: edited((5, b"five\n"))})
    raw = patch.raw.replace(b"Ada L", name.encode())
    without_index = b"\n".join(line for line in raw.split(b"\n") if not line.startswith(b"similar"))
    applied = small.apply([Patch(patch.path, patch.id, patch.name, without_index)])
    author = git_text("log", "-1", "--format=%an <%ae> %at", applied[0].commit, cwd=small.path)
    assert author == f"{name} <ada@example.org> 1796083200"


def test_a_tree_with_old_modes_is_git_s_alone(small: SmallRepo) -> None:
    """git writes 100664 as 100644 when it writes the folder anew, and only then."""
    blob = git("hash-object", "-w", "--stdin", cwd=small.path, stdin=b"x\n").decode().strip()
    tree = git("mktree", cwd=small.path, stdin=f"100664 blob {blob}\tf\n".encode()).decode().strip()
    base = git("commit-tree", tree, "-m", "old", cwd=small.path).decode().strip()
    (patch,) = small.patches({b"new": b"new\n"})
    applied = small.apply([patch], base)
    assert applied[0].fit is Fit.GIT
    assert [(item.commit, item.tree) for item in applied] == git_am(small.path, base, [patch.raw])[
        0
    ]


def test_attributes_of_the_tree_convert_nothing(small: SmallRepo) -> None:
    files = {b".gitattributes": b"* text=auto eol=crlf\n*.py ident\n", b"x.py": b"$Id$\r\nb\r\n"}
    patches = small.patches(files, {b"x.py": b"$Id$\r\nb\r\nc\n"})
    raw = reencoded(patches[1].raw, b"base64", base64.encodebytes)
    through_git = Patch(patches[1].path, patches[1].id, patches[1].name, raw)
    one, other = small.apply(patches), small.apply([patches[0], through_git])
    assert other[1].fit is Fit.GIT
    assert one[1].tree == other[1].tree
    assert small.read(one, "x.py") == b"$Id$\r\nb\r\nc\n"


def test_nothing_of_the_repository_reaches_a_session_but_its_objects(small: SmallRepo) -> None:
    git("config", "core.hooksPath", "/nonexistent", cwd=small.path)
    (small.path / "rebase-apply").mkdir()
    (small.path / "index.lock").touch()
    with AmSession(small.path) as session:
        session.checkout(small.base)
        assert (session.work_tree / "core" / "numbers.py").read_bytes() == BASE[NUMBERS][1]
        assert b"nonexistent" not in session.git("config", "--list", "--local")
        folder = session.folder
    assert not folder.exists()
