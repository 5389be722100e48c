# SPDX-License-Identifier: Apache-2.0
"""From an index into the cache: the right bytes or a clear error, never half a file."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest
from local_index import Fault, LocalIndex, serve
from workshop import SDIST, WHEEL

from mxtree.errors import ExitCode, FatalError
from mxtree.upstreams import Imported, Source, ensure_imported

if TYPE_CHECKING:
    from pathlib import Path

    from workshop import Workshop

INDEX = Source("index")


def bring(workshop: Workshop, name: str = "tiny") -> Imported:
    return ensure_imported(workshop.project, workshop.upstream(name), "1.0", INDEX)


def fails(workshop: Workshop, code: ExitCode) -> FatalError:
    with pytest.raises(FatalError) as caught:
        bring(workshop)
    assert caught.value.code == code
    assert caught.value.hint
    assert "tiny-1.0.tar.gz" in caught.value.message
    assert not list((cache_of(workshop) / "upstreams").glob("tiny.git"))
    return caught.value


def cache_of(workshop: Workshop) -> Path:
    return workshop.root.parent / "cache"


def download_folder(workshop: Workshop) -> Path:
    return cache_of(workshop) / "downloads" / hashlib.sha256(SDIST).hexdigest()


def git(repo: Path, *args: str) -> str:
    command = ["git", "-C", str(repo), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", ["tiny", "round"])
def test_a_release_becomes_a_tagged_commit(
    workshop: Workshop, index: LocalIndex, cache: Path, name: str
) -> None:
    found = bring(workshop, name)
    assert (found.upstream, found.version, found.tag) == (name, "1.0", "v1.0")
    assert found.repo == cache / "upstreams" / f"{name}.git"
    assert found.tree == workshop.pins[name]["tree"]
    assert git(found.repo, "rev-parse", "refs/tags/v1.0") == found.commit
    assert git(found.repo, "rev-parse", "v1.0^{tree}") == found.tree
    assert git(found.repo, "rev-parse", "--is-bare-repository") == "true"
    assert found.source == {
        "kind": "index",
        "file": workshop.pins[name]["file"],
        "sha256": workshop.pins[name]["sha256"],
    }
    assert not found.cached
    assert found.downloaded == len({"tiny": SDIST, "round": WHEEL}[name])


def test_the_second_time_nothing_is_asked(workshop: Workshop, index: LocalIndex) -> None:
    first = bring(workshop)
    asked = len(index.requests)
    second = bring(workshop)
    assert len(index.requests) == asked
    assert second.cached
    assert second.downloaded is None
    assert (second.commit, second.tree, second.repo) == (first.commit, first.tree, first.repo)


def test_a_download_serves_again_when_the_repository_is_gone(
    workshop: Workshop, index: LocalIndex, cache: Path
) -> None:
    first = bring(workshop)
    asked = len(index.requests)
    (cache / "upstreams" / "tiny.git").rename(cache / "elsewhere")
    assert bring(workshop).commit == first.commit
    assert len(index.requests) == asked


def test_a_damaged_download_is_not_trusted(
    workshop: Workshop, index: LocalIndex, cache: Path
) -> None:
    bring(workshop)
    (cache / "upstreams" / "tiny.git").rename(cache / "elsewhere")
    (download_folder(workshop) / "tiny-1.0.tar.gz").write_bytes(b"rot")
    assert bring(workshop).downloaded == len(SDIST)
    assert (download_folder(workshop) / "tiny-1.0.tar.gz.wrong").read_bytes() == b"rot"


def test_another_pin_of_the_same_version_is_imported_anew(
    workshop: Workshop, index: LocalIndex
) -> None:
    first = bring(workshop)
    workshop.pins["tiny"] |= workshop.pins["round"] | {"file": "tiny-1.0.tar.gz"}
    with pytest.raises(FatalError):
        bring(workshop)
    workshop.pins["tiny"]["sha256"] = hashlib.sha256(SDIST).hexdigest()
    # The cache has this file, but not as this tree.
    with pytest.raises(FatalError, match="makes another tree than the pinned one"):
        bring(workshop)
    assert git(first.repo, "rev-parse", "refs/tags/v1.0") == first.commit


def test_a_tree_that_differs_is_refused_and_both_are_named(
    workshop: Workshop, index: LocalIndex
) -> None:
    right = workshop.pins["tiny"]["tree"]
    workshop.pins["tiny"]["tree"] = "1" * 40
    error = fails(workshop, ExitCode.CHECK_FAILED)
    assert error.details == (f"pinned: {'1' * 40}", f"found:  {right}")
    assert error.hint is not None
    assert '[upstream.tiny.release."1.0"]' in error.hint


# How the index may fail, and what the user is told.


def test_a_wrong_hash_on_the_page_is_not_even_downloaded(
    workshop: Workshop, index: LocalIndex
) -> None:
    index.add("tiny", "tiny-1.0.tar.gz", SDIST, sha256="2" * 64)
    error = fails(workshop, ExitCode.CHECK_FAILED)
    assert f"  expected {hashlib.sha256(SDIST).hexdigest()}" in error.details
    assert f"  got      {'2' * 64}" in error.details
    assert not index.file_requests()


def test_wrong_bytes_are_kept_aside_and_named(workshop: Workshop, index: LocalIndex) -> None:
    index.files["tiny-1.0.tar.gz"] = b"something else"
    error = fails(workshop, ExitCode.CHECK_FAILED)
    assert f"  got      {hashlib.sha256(b'something else').hexdigest()}" in error.details
    aside = download_folder(workshop) / "tiny-1.0.tar.gz.wrong"
    assert f"  the wrong file is kept as {aside}" in error.details
    assert aside.read_bytes() == b"something else"
    assert not (download_folder(workshop) / "tiny-1.0.tar.gz").exists()
    index.files["tiny-1.0.tar.gz"] = SDIST
    assert bring(workshop).downloaded == len(SDIST)


def test_an_index_without_hashes_is_enough(workshop: Workshop, index: LocalIndex) -> None:
    index.add("tiny", "tiny-1.0.tar.gz", SDIST, sha256=None)
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]


def test_a_broken_connection_is_taken_up_again(workshop: Workshop, index: LocalIndex) -> None:
    index.faults.append(Fault(break_after=100_000))
    assert bring(workshop).downloaded == len(SDIST)
    assert start_of(index, 0) == 0
    assert 80_000 < start_of(index, 1) <= 100_000


def start_of(index: LocalIndex, number: int) -> int:
    asked = index.file_requests()[number][1] or "bytes=0-"
    return int(asked.removeprefix("bytes=").removesuffix("-"))


def test_a_server_without_ranges_sends_all_again(workshop: Workshop, index: LocalIndex) -> None:
    index.faults += [Fault(break_after=100_000), Fault(ignore_range=True)]
    received = bring(workshop).downloaded
    assert received == len(SDIST) + start_of(index, 1)


def test_a_connection_that_keeps_breaking_is_an_error_and_the_next_run_goes_on(
    workshop: Workshop, index: LocalIndex
) -> None:
    index.faults += [Fault(break_after=60_000), Fault(break_after=60_000)]
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert index.url in error.details[0]
    assert error.hint is not None
    assert "mxtree fetch tiny@1.0" in error.hint
    part = (download_folder(workshop) / "tiny-1.0.tar.gz.part").read_bytes()
    assert 90_000 < len(part) <= 120_000
    assert SDIST.startswith(part)
    assert bring(workshop).downloaded == len(SDIST) - len(part)
    assert start_of(index, 2) == len(part)


@pytest.mark.parametrize("rest", [b"", b"and more"])
def test_a_kept_part_that_is_too_long_is_thrown_away(
    workshop: Workshop, index: LocalIndex, rest: bytes
) -> None:
    download_folder(workshop).mkdir(parents=True)
    (download_folder(workshop) / "tiny-1.0.tar.gz.part").write_bytes(SDIST + rest)
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]


def test_a_kept_part_of_another_file_is_thrown_away(workshop: Workshop, index: LocalIndex) -> None:
    download_folder(workshop).mkdir(parents=True)
    (download_folder(workshop) / "tiny-1.0.tar.gz.part").write_bytes(b"x" * 60)
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]
    assert [asked for _, asked in index.file_requests()] == ["bytes=60-", None]


def test_a_server_that_is_busy_is_asked_again(workshop: Workshop, index: LocalIndex) -> None:
    index.faults.append(Fault(status=503))
    assert bring(workshop).downloaded == len(SDIST)


@pytest.mark.parametrize(("status", "said"), [(500, "500"), (403, "403"), (404, "404")])
def test_a_file_that_is_not_given_is_an_error(
    workshop: Workshop, index: LocalIndex, status: int, said: str
) -> None:
    index.faults += [Fault(status=status)] * 2
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert said in error.details[0]


def test_a_page_that_is_not_given_is_an_error(workshop: Workshop, index: LocalIndex) -> None:
    index.page_status = 500
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert "500" in error.details[0]


def test_an_index_that_lacks_the_project_or_file(workshop: Workshop, index: LocalIndex) -> None:
    del index.projects["tiny"]["tiny-1.0.tar.gz"]
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert error.details == (f"{index.url}: does not have this file",)
    del index.projects["tiny"]
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert error.details == (f"{index.url}: has no tiny",)
    assert "no index that pip is configured with has" in error.message


def test_a_page_that_is_none_is_said(workshop: Workshop, index: LocalIndex) -> None:
    index.page_kind = "image/png"
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert error.details[0].startswith(f"{index.url}: is no package index: ")


def test_a_download_that_cannot_be_written_is_said(workshop: Workshop, index: LocalIndex) -> None:
    part = download_folder(workshop) / "tiny-1.0.tar.gz.part"
    part.mkdir(parents=True)
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert error.message == f"{part} cannot be written: Is a directory"


def test_no_network_is_one_clear_error(
    workshop: Workshop, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert "not in the cache and could not be fetched" in error.message
    assert len(error.details) == 1
    assert error.details[0].startswith("http://127.0.0.1:9/simple: ")
    assert "refused" in error.details[0]
    assert "secret" not in str(error.details)


def test_pip_with_no_index_asks_none(workshop: Workshop) -> None:
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert "no index that pip is configured with has" in error.message


# Which places are asked, in which order.


def test_an_extra_index_helps_out(
    workshop: Workshop, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as first:
        first.add("tiny", "tiny-1.0.tar.gz", b"other bytes under the same name")
        monkeypatch.setenv("PIP_INDEX_URL", first.url)
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.url)
        assert bring(workshop).tree == workshop.pins["tiny"]["tree"]
        assert not first.file_requests()


def make_file_index(folder: Path) -> str:
    page = folder / "simple" / "tiny" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text('<a href="../../files/tiny-1.0.tar.gz">tiny-1.0.tar.gz</a>\n')
    (folder / "files").mkdir()
    (folder / "files" / "tiny-1.0.tar.gz").write_bytes(SDIST)
    return (folder / "simple").as_uri()


@pytest.mark.parametrize("how", ["file URL", "path", "find-links folder", "find-links page"])
def test_local_places_serve_without_a_network(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    url = make_file_index(tmp_path / "with space")
    folder = tmp_path / "with-space"
    (tmp_path / "with space").rename(folder)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    if how.startswith("find-links"):
        page = "simple/tiny/index.html" if how.endswith("page") else "files"
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder / page))
    else:
        monkeypatch.delenv("PIP_NO_INDEX")
        place = url.replace("with%20space", "with-space")
        monkeypatch.setenv("PIP_INDEX_URL", place if how == "file URL" else str(folder / "simple"))
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]


def test_wrong_bytes_in_a_local_place_do_not_hide_the_index(
    workshop: Workshop, index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "tiny-1.0.tar.gz").write_bytes(b"other bytes")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]
    assert (download_folder(workshop) / "tiny-1.0.tar.gz.wrong").read_bytes() == b"other bytes"


def test_offline_nothing_is_asked_and_the_command_is_named(
    workshop: Workshop, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    error = fails(workshop, ExitCode.COULD_NOT_CHECK)
    assert "MXTREE_OFFLINE forbids the network" in error.message
    assert error.hint is not None
    assert error.hint.endswith("MXTREE_OFFLINE=0 mxtree fetch tiny@1.0")
    assert not index.requests
    monkeypatch.delenv("MXTREE_OFFLINE")
    bring(workshop)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    assert bring(workshop).cached


# The cache itself.


def test_a_folder_that_is_no_repository_is_said(
    workshop: Workshop, index: LocalIndex, cache: Path
) -> None:
    (cache / "upstreams" / "tiny.git").mkdir(parents=True)
    with pytest.raises(FatalError, match=r"tiny\.git is damaged") as caught:
        bring(workshop)
    assert caught.value.hint is not None
    assert f"rm -r '{cache / 'upstreams' / 'tiny.git'}'" in caught.value.hint


def test_a_cache_that_is_a_file_is_said(workshop: Workshop, index: LocalIndex, cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(FatalError, match="the cache cannot be used") as caught:
        bring(workshop)
    assert caught.value.hint is not None
    assert "MXTREE_CACHE=" in caught.value.hint


# The directory source.


def test_a_directory_is_imported_under_another_ref(
    workshop: Workshop, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "some folder"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_bytes(b"a\r\n")
    source = Source.parse(f"dir:{folder}")
    found = ensure_imported(workshop.project, workshop.upstream(), "1.0", source)
    assert found.source == {"kind": "dir", "tree": found.tree}
    assert git(found.repo, "ls-tree", "-r", "--name-only", found.commit) == "pkg/a.py"
    assert git(found.repo, "tag") == ""
    assert not found.cached
    assert ensure_imported(workshop.project, workshop.upstream(), "1.0", source).cached
    (folder / "pkg" / "a.py").write_bytes(b"b\r\n")
    changed = ensure_imported(workshop.project, workshop.upstream(), "1.0", source)
    assert not changed.cached
    assert changed.commit != found.commit
