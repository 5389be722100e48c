# SPDX-License-Identifier: Apache-2.0
"""`mxtree fetch --pin`: a new entry with computed hashes; the rest of the file stays as it is."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from git_server import serve_git
from release_files import Member, make_sdist
from workshop import SDIST

from mxtree.rebase.bases import NEWEST, resolve
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_index import LocalIndex
    from workshop import Workshop

    Command = Callable[..., tuple[str, str]]

NEW = make_sdist([Member("tiny/__init__.py", b"VERSION = '1.1'\n")], top="tiny-1.1")


@pytest.fixture
def newer(index: LocalIndex) -> LocalIndex:
    """Return an index that has also a newer release, and files that are no release of ours."""
    index.add("tiny", "tiny-1.1.tar.gz", NEW)
    index.add("tiny", "tiny-1.1-py3-none-any.whl", b"not the packaging of this upstream")
    index.add("tiny", "tiny-1.2-cp311-cp311-linux_x86_64.whl", b"not pure")
    index.add("tiny", "README.tar.gz", b"no version")
    return index


def test_a_new_release_is_added_and_can_be_fetched(
    mxtree: Command, workshop: Workshop, newer: LocalIndex
) -> None:
    path = workshop.project.upstreams_file
    head, separator, rest = path.read_text().partition("[upstream.round]")
    before = f"# our pins\n{head}# what is round\n{separator}  # a comment\n{rest}# the end\n"
    path.write_text(before)
    out, err = mxtree("fetch", "--pin", "tiny@1.1")
    digest = hashlib.sha256(NEW).hexdigest()
    assert out.startswith('added:\n[upstream.tiny.release."1.1"]\nfile = "tiny-1.1.tar.gz"\n')
    assert f'sha256 = "{digest}"' in out
    assert "no commit" in err
    after = path.read_text()
    entry = "\n" + out.removeprefix("added:\n")
    assert after.replace(entry, "", 1) == before
    assert after.index(entry) < after.index("# what is round")
    upstream = load_upstreams(workshop.project).get("tiny")
    assert list(upstream.releases) == ["1.0", "1.1"]
    assert upstream.default == "1.0"
    found = ensure_imported(workshop.project, upstream, "1.1", Source("index"))
    assert (found.tag, found.tree) == ("v1.1", upstream.release("1.1").tree)


@pytest.mark.parametrize("version", ["1.1rc0.dev132713", "1.1.dev5", "1.1.post1.dev2", "1.1b2"])
def test_a_development_release_can_be_pinned(
    mxtree: Command, workshop: Workshop, index: LocalIndex, version: str
) -> None:
    index.add("tiny", f"tiny-{version}.tar.gz", NEW)
    mxtree("fetch", "--pin", f"tiny@{version}")
    upstream = load_upstreams(workshop.project).get("tiny")
    found = ensure_imported(workshop.project, upstream, version, Source("index"))
    assert (found.version, found.tag) == (version, f"v{version}")


def test_the_last_upstream_of_the_file_can_be_extended(
    mxtree: Command, workshop: Workshop, newer: LocalIndex
) -> None:
    workshop.pins = {"tiny": workshop.pins["tiny"]}
    workshop.write()
    before = workshop.project.upstreams_file.read_text()
    mxtree("fetch", "--pin", "tiny@1.1")
    after = workshop.project.upstreams_file.read_text()
    assert after.startswith(before)
    assert after.endswith('"\n')


def test_a_file_in_another_style_is_extended_or_left_alone(
    mxtree: Command, workshop: Workshop, newer: LocalIndex
) -> None:
    path = workshop.project.upstreams_file
    spaced = path.read_text().replace("[upstream.tiny", "[ upstream.tiny")
    path.write_text(spaced)
    mxtree("fetch", "--pin", "tiny@1.1")
    assert path.read_text().startswith(spaced)
    assert load_upstreams(workshop.project).get("tiny").release("1.1").tag == "v1.1"
    pin = workshop.pins["tiny"]
    values = ", ".join(f'{key} = "{pin[key]}"' for key in ("file", "sha256", "tree"))
    head, _, tail = spaced.partition('[ upstream.tiny.release."1.0"]')
    inline = f'{head}release = {{ "1.0" = {{ {values} }} }}\n\n' + tail.partition("\n\n")[2]
    path.write_text(inline)
    assert load_upstreams(workshop.project).get("tiny").release("1.0").tag == "v1.0"
    _, err = mxtree("fetch", "--pin", "tiny@1.1", code=2)
    assert "written in a way that mxtree cannot extend" in err
    assert "is not TOML" in err
    assert 'sha256 = "' in err
    assert path.read_text() == inline


def test_a_pinned_release_is_compared(
    mxtree: Command, workshop: Workshop, index: LocalIndex
) -> None:
    before = workshop.project.upstreams_file.read_text()
    out, _ = mxtree("fetch", "--pin", "tiny@1.0", "--json")
    said = json.loads(out)
    assert (said["upstream"], said["version"], said["added"]) == ("tiny", "1.0", False)
    assert workshop.pins["tiny"]["tree"] in said["entry"]
    workshop.pins["tiny"]["tree"] = "1" * 40
    workshop.write()
    _, err = mxtree("fetch", "--pin", "tiny@1.0", code=1)
    assert "tiny 1.0 is pinned already, as something else than the index has" in err
    workshop.pins["tiny"]["tree"] = said["entry"].partition('tree = "')[2][:40]
    workshop.write()
    assert workshop.project.upstreams_file.read_text() == before


def test_the_commit_of_the_tag_is_pinned_when_the_repository_has_it(
    mxtree: Command, workshop: Workshop, newer: LocalIndex, tmp_path: Path
) -> None:
    repo = tmp_path / "served" / "tiny"

    def git(*args: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
        command = ["git", "-C", str(repo), *identity, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    repo.mkdir(parents=True)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "x")
    git("tag", "--annotate", "--message", "1.1", "v1.1")
    with serve_git(repo.parent) as server:
        workshop.pins["tiny"]["repository"] = f"{server.url}/tiny"
        workshop.write()
        out, err = mxtree("fetch", "--pin", "tiny@1.1")
    assert out.endswith(f'commit = "{git("rev-parse", "HEAD")}"\n')
    assert "no commit" not in err


@pytest.mark.parametrize(
    ("pin", "code", "said"),
    [
        ("tiny@1.3", 4, "nearest versions there: 1.1, 1.0"),
        ("tiny@1.2", 4, "has the sdist of tiny 1.2"),
        ("tinny@1.1", 2, "there is no upstream 'tinny'"),
    ],
)
def test_what_cannot_be_pinned_leaves_the_file_alone(
    mxtree: Command, workshop: Workshop, newer: LocalIndex, pin: str, code: int, said: str
) -> None:
    before = workshop.project.upstreams_file.read_bytes()
    _, err = mxtree("fetch", "--pin", pin, code=code)
    assert said in err
    assert workshop.project.upstreams_file.read_bytes() == before


def test_an_index_without_hashes_is_not_trusted(mxtree: Command, newer: LocalIndex) -> None:
    newer.add("tiny", "tiny-1.1.tar.gz", NEW, sha256=None)
    _, err = mxtree("fetch", "--pin", "tiny@1.1", code=4)
    assert "gives no sha256 for tiny-1.1.tar.gz" in err


def test_other_bytes_than_the_index_promises_are_not_pinned(
    mxtree: Command, newer: LocalIndex
) -> None:
    newer.files["tiny-1.1.tar.gz"] = SDIST
    _, err = mxtree("fetch", "--pin", "tiny@1.1", code=1)
    assert "has another sha256" in err


def test_offline_only_the_cache_and_local_places_count(
    mxtree: Command, newer: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    _, err = mxtree("fetch", "--pin", "tiny@1.1", code=4)
    assert "has the sdist of tiny 1.1" in err
    assert not newer.requests


def test_the_newest_release_of_the_index_can_be_a_base_without_being_pinned(
    workshop: Workshop, newer: LocalIndex
) -> None:
    newer.add("tiny", "tiny-1.2rc1.tar.gz", NEW)
    before = workshop.project.upstreams_file.read_bytes()
    upstream = load_upstreams(workshop.project).get("tiny")
    found = resolve(workshop.project, upstream, NEWEST, Source("index"))
    assert (found.version, found.tag) == ("1.1", "v1.1")
    assert workshop.project.upstreams_file.read_bytes() == before
