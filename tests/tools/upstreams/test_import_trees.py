# SPDX-License-Identifier: Apache-2.0
"""Whatever an archive or folder holds, the import is the tree that `git add` makes of it."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from release_files import git_tree

from mxtree.errors import FatalError
from mxtree.upstreams import repository
from mxtree.upstreams.archive import read_archive
from mxtree.upstreams.content import EXECUTABLE, REGULAR, SYMLINK, File, check
from mxtree.upstreams.folder import read_folder
from mxtree.upstreams.objects import commit_id, tree_id

# Bytes that shells, git's quoting, fast-import's quoting, attributes and sorting trip over.
_BYTES = st.sampled_from(
    [bytes([b]) for b in b"abA.-0_ \"'\\\n\t\r#*?[]~:;$!\x7f\xff\xc3"]
) | st.sampled_from(["ü", "字", "e\u0301", "\u202e", "\ufeff"]).map(str.encode)
_PART = (
    st.lists(_BYTES, min_size=1, max_size=6)
    .map(b"".join)
    .filter(lambda part: part not in {b".", b".."} and part.lower() != b"git~1")
) | st.sampled_from([b".gitignore", b".gitattributes", b"a", b"a.b", b"a-b"])
_PATH = st.lists(_PART, min_size=1, max_size=4).map(b"/".join)
_DATA = st.binary(max_size=200) | st.sampled_from(
    [b"", b"\n", b"x\r\ny\n", b"*.py\n*\n", b"* text eol=crlf\n", b"no end", b"$Id$\n"]
)
_FILE = st.tuples(st.sampled_from([REGULAR, EXECUTABLE]), _DATA)
_LINK = st.tuples(st.just(SYMLINK), _PART | st.sampled_from([b"./a", b"a//b", b"a/"]))
_TREE = st.dictionaries(_PATH, _FILE | _LINK, min_size=1, max_size=8)


def _files(content: dict[bytes, tuple[bytes, bytes]]) -> list[File]:
    """Return the content without paths that lie below another one's file or link."""
    paths = set(content)
    return [
        File(path, mode, data)
        for path, (mode, data) in content.items()
        if not any(path[:n] in paths for n in range(len(path)) if path[n : n + 1] == b"/")
    ]


def _tar(files: list[File], path: Path) -> None:
    def text(raw: bytes) -> str:
        return raw.decode("utf-8", "surrogateescape")

    with tarfile.open(path, "w:gz", encoding="utf-8", errors="surrogateescape") as archive:
        for file in files:
            info = tarfile.TarInfo("top-1.0/" + text(file.path))
            info.mode, info.size = int(file.mode[3:], 8), len(file.data)
            if file.mode == SYMLINK:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, text(file.data), 0
            archive.addfile(info, io.BytesIO(file.data))


def _write(files: list[File], root: Path) -> None:
    for file in files:
        path = root / os.fsdecode(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.mode == SYMLINK:
            os.symlink(file.data, path)  # noqa: PTH211  Path would tidy the target
            continue
        path.write_bytes(file.data)
        path.chmod(int(file.mode[3:], 8))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(content=_TREE)
@example(content={b"a": (REGULAR, b"1"), b"a.b": (REGULAR, b"2"), b"a-b/c": (REGULAR, b"3")})
@example(content={b'q"\\\n /x': (EXECUTABLE, b"\0\xff"), b".gitattributes": (REGULAR, b"* text")})
def test_archive_folder_and_import_agree_with_git_add(
    content: dict[bytes, tuple[bytes, bytes]],
) -> None:
    files = _files(content) or [File(b"x", REGULAR, b"")]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "work").mkdir()
        _write(files, root / "work")
        expected = git_tree(root / "work")
        _tar(files, root / "top-1.0.tar.gz")
        read = read_archive(root / "top-1.0.tar.gz")
        assert sorted(read, key=lambda file: file.path) == sorted(files, key=lambda f: f.path)
        assert tree_id(read) == expected
        assert tree_id(read_folder(root / "work")) == expected
        repository.create(root / "bare.git")
        commit = repository.import_files(root / "bare.git", read, "message\n")
        assert commit == commit_id(expected, "message\n")
        repository.publish(root / "bare.git", "refs/x/y", commit)
        assert repository.find(root / "bare.git", "refs/x/y") == (commit, expected)


def test_an_import_is_one_pack_and_no_ref(tmp_path: Path) -> None:
    repo = tmp_path / "bare.git"
    repository.create(repo)
    commit = repository.import_files(repo, [File(b"a", REGULAR, b"1")], "one file\n")
    objects = [path for path in (repo / "objects").rglob("*") if path.is_file()]
    assert sorted(path.suffix for path in objects) == [".idx", ".pack"]
    assert not list((repo / "refs").rglob("*/*"))
    command = ["git", "-C", str(repo), "fsck", "--strict", "--full", "--no-dangling"]
    subprocess.run(command, check=True)
    show = ["git", "-C", str(repo), "cat-file", "commit", commit]
    text = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    assert text.endswith("\n\none file\n")
    assert "author mxtree <mxtree@mxtree.invalid> 1767225600 +0000" in text


def test_blob_ids_are_gits(tmp_path: Path) -> None:
    repo, data = tmp_path / "bare.git", b"x = 1\r\n"
    repository.create(repo)
    commit = repository.import_files(repo, [File(b"d/a", REGULAR, data)], "m\n")
    blob = hashlib.sha1(b"blob 7\0" + data).hexdigest()
    command = ["git", "-C", str(repo), "rev-parse", f"{commit}:d/a"]
    assert subprocess.run(command, check=True, capture_output=True).stdout == f"{blob}\n".encode()


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "f"
    _write(
        [
            File(b".gitignore", REGULAR, b"*\n"),
            File(b"ignored.pyc", REGULAR, b"1"),
            File(b".git/config", REGULAR, b"not taken"),
            File(b"sub/.git", REGULAR, b"gitdir: elsewhere"),
            File(b"sub/x", EXECUTABLE, b"2"),
        ],
        root,
    )
    (root / "empty").mkdir()
    assert [file.path for file in read_folder(root)] == [b".gitignore", b"ignored.pyc", b"sub/x"]


def test_odd_files_of_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FatalError) as caught:
        read_folder(tmp_path)
    assert caught.value.details == ("pipe: neither file nor symbolic link",)
    (tmp_path / "pipe").unlink()
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(FatalError) as caught:
        read_folder(tmp_path)
    assert caught.value.details == ("out: symbolic link to the absolute path /etc",)
    (tmp_path / "out").unlink()
    with pytest.raises(FatalError, match="holds no files"):
        read_folder(tmp_path)


def test_nul_and_empty_names_are_refused() -> None:
    bad = [File(b"a\0b", REGULAR, b""), File(b"", REGULAR, b""), File(b"a//b", REGULAR, b"")]
    with pytest.raises(FatalError) as caught:
        check([*bad, File(b"l", SYMLINK, b"")], "x.whl")
    assert [line.rpartition(": ")[2] for line in caught.value.details] == [
        "NUL in the path",
        "'' in the path",
        "'' in the path",
        "symbolic link without a usable target",
    ]
