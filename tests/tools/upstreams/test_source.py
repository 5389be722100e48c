# SPDX-License-Identifier: Apache-2.0
"""`--source`: every form, and every near miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.errors import FatalError
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "location", "commit"),
    [
        ("https://example.invalid/x.git", "https://example.invalid/x.git", None),
        (f"https://example.invalid/x.git@{COMMIT}", "https://example.invalid/x.git", COMMIT),
        ("https://me:secret@example.invalid/x", "https://me:secret@example.invalid/x", None),
        (f"ssh://git@example.invalid:22/x@{COMMIT}", "ssh://git@example.invalid:22/x", COMMIT),
        ("git@example.invalid:group/x.git", "git@example.invalid:group/x.git", None),
        (f"git@example.invalid:x.git@{COMMIT}", "git@example.invalid:x.git", COMMIT),
    ],
)
def test_git_urls(text: str, location: str, commit: str | None) -> None:
    source = Source.parse(f"git:{text}")
    assert source == Source("git", location, commit)
    assert source.path is None
    assert Source.parse(str(source)) == source


def test_kinds_without_a_place() -> None:
    assert Source.parse("index") == Source("index")
    assert Source.parse("git") == Source("git")


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b@c").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = str(tmp_path / "a b@c")
    assert Source.parse("dir:a b@c") == Source("dir", place)
    assert Source.parse("git:a b@c") == Source("git", place)
    assert Source.parse(f"git:a b@c@{COMMIT}") == Source("git", place, COMMIT)
    assert Source.parse("git:~/a b@c").path == tmp_path / "a b@c"
    assert Source.parse(f"git:file://{tmp_path}/a%20b@c@{COMMIT}") == Source("git", place, COMMIT)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is not a source"),
        ("indexes", "is not a source"),
        ("index:x", "is not a source"),
        ("dir", "is not a source"),
        ("dir:", "is not a source"),
        ("git:", "is not a source"),
        ("svn:x", "is not a source"),
        ("dir:/no/such/folder", "there is no folder /no/such/folder"),
        ("git:/no/such/folder", "neither a URL nor a folder"),
        ("git:no-such-folder", "neither a URL nor a folder"),
        ("git:--upload-pack=evil:x", "neither a URL nor a folder"),
        ("git:https://example.invalid/x@v1.0", "'v1.0' is not a full commit id"),
        ("git:https://example.invalid/x@0123abc", "'0123abc' is not a full commit id"),
        (f"git:https://example.invalid/x@{COMMIT.upper()}", "is not a full commit id"),
    ],
)
def test_anything_else_is_refused(text: str, match: str) -> None:
    with pytest.raises(FatalError, match=match):
        Source.parse(text)
