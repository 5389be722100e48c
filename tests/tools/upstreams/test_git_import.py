# SPDX-License-Identifier: Apache-2.0
"""The git source: upstream's own commit from full, shallow and partial clones and from URLs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from git_server import GitServer, serve_git

from mxtree.errors import ExitCode, FatalError
from mxtree.upstreams import Imported, Source, ensure_imported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workshop import Workshop


def git(*args: str | Path, cwd: Path | None = None) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": "upstream@example.invalid"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    command = ["git", *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@dataclass(frozen=True)
class Origin:
    """An upstream's repository: three commits, an annotated tag v1.0 on the second."""

    path: Path
    first: str
    release: str
    head: str


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    path = tmp_path_factory.mktemp("origin") / "tiny"
    git("init", "--quiet", "--initial-branch=main", path)
    git("config", "uploadpack.allowFilter", "true", cwd=path)
    commits = []
    for number in range(3):
        (path / "pkg").mkdir(exist_ok=True)
        (path / "pkg" / "a.py").write_bytes(b"x = %d\r\n" % number)
        (path / "pkg" / f"only_{number}.py").write_bytes(b"only in this commit %d" % number)
        (path / "run.sh").write_text("#!/bin/sh\n")
        (path / "run.sh").chmod(0o755)
        if number == 0:
            (path / "link").symlink_to("pkg/a.py")
        git("add", "--all", cwd=path)
        git("commit", "--quiet", "--message", f"commit {number}", cwd=path)
        commits.append(git("rev-parse", "HEAD", cwd=path))
        git("rm", "--quiet", f"pkg/only_{number}.py", cwd=path)
        if number == 1:
            git("tag", "--annotate", "--message", "the release", "v1.0", cwd=path)
    git("reset", "--quiet", "--hard", cwd=path)
    return Origin(path, *commits)


@pytest.fixture
def server(origin: Origin) -> Iterator[GitServer]:
    with serve_git(origin.path.parent) as running:
        yield running


def bring(workshop: Workshop, source: str) -> Imported:
    return ensure_imported(workshop.project, workshop.upstream(), "1.0", Source.parse(source))


def refused(workshop: Workshop, source: str) -> FatalError:
    with pytest.raises(FatalError) as caught:
        bring(workshop, source)
    assert caught.value.code == ExitCode.COULD_NOT_CHECK
    return caught.value


def check_import(found: Imported, origin: Origin, commit: str) -> None:
    """Check that the import is upstream's commit, whole, and that it needs no history."""
    assert found.commit == commit
    assert found.tree == git("rev-parse", f"{commit}^{{tree}}", cwd=origin.path)
    assert found.source == {"kind": "git", "commit": commit}
    git("fsck", "--full", "--strict", cwd=found.repo)
    assert git("log", "--format=%H", commit, cwd=found.repo) == commit
    listed = git("ls-tree", "-r", commit, cwd=found.repo)
    assert listed == git("ls-tree", "-r", commit, cwd=origin.path)
    for line in listed.splitlines():
        git("cat-file", "-e", line.split()[2], cwd=found.repo)


def clone(origin: Origin, target: Path, *options: str) -> Path:
    git("clone", "--quiet", *options, origin.path.as_uri(), target)
    return target


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--bare",),
        ("--depth=1", "--branch=v1.0"),
        ("--filter=blob:none", "--no-checkout"),
        ("--filter=tree:0", "--no-checkout"),
        ("--filter=blob:none", "--no-checkout", "--depth=1", "--branch=v1.0"),
    ],
    ids=["full", "bare", "shallow", "blobless", "treeless", "shallow-blobless"],
)
def test_every_kind_of_clone_gives_the_commit(
    workshop: Workshop, origin: Origin, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = clone(origin, tmp_path / "a clone", *options)
    found = bring(workshop, f"git:{path}@{origin.release}")
    check_import(found, origin, origin.release)
    assert not found.cached
    # Without the clone: the import does not borrow from it.
    path.rename(tmp_path / "moved")
    assert bring(workshop, f"git:{tmp_path / 'moved'}@{origin.release}").cached
    git("fsck", "--full", cwd=found.repo)


def test_several_commits_share_the_repository(workshop: Workshop, origin: Origin) -> None:
    for commit in (origin.first, origin.release, origin.head):
        check_import(bring(workshop, f"git:{origin.path}@{commit}"), origin, commit)


def test_a_worktree_and_a_sub_folder_are_the_clone_too(
    workshop: Workshop, origin: Origin, tmp_path: Path
) -> None:
    path = clone(origin, tmp_path / "clone")
    git("worktree", "add", "--quiet", tmp_path / "tree", cwd=path)
    check_import(
        bring(workshop, f"git:{tmp_path / 'tree'}@{origin.release}"), origin, origin.release
    )
    check_import(bring(workshop, f"git:{path / 'pkg'}@{origin.head}"), origin, origin.head)


def test_the_pinned_commit_is_the_default_then_the_tag(workshop: Workshop, origin: Origin) -> None:
    check_import(bring(workshop, f"git:{origin.path}"), origin, origin.release)
    workshop.pins["tiny"]["commit"] = origin.head
    check_import(bring(workshop, f"git:{origin.path}"), origin, origin.head)
    workshop.pins["tiny"]["repository"] = str(origin.path)
    check_import(bring(workshop, "git"), origin, origin.head)


def test_git_and_index_imports_do_not_meet(workshop: Workshop, origin: Origin) -> None:
    found = bring(workshop, f"git:{origin.path}")
    assert found.repo.name == "tiny-from-git.git"
    assert git("for-each-ref", "refs/tags", cwd=found.repo) == ""
    assert (found.repo / "shallow").read_text().split() == [origin.release]


def test_a_commit_that_the_clone_lacks(workshop: Workshop, origin: Origin, tmp_path: Path) -> None:
    path = clone(origin, tmp_path / "clone", "--depth=1")
    error = refused(workshop, f"git:{path}@{origin.first}")
    assert f"does not have commit {origin.first}" in error.message
    assert error.hint is not None
    assert f"git -C '{path}' fetch" in error.hint
    error = refused(workshop, f"git:{path}")
    assert "does not have the tag v1.0" in error.message
    tree = git("rev-parse", "HEAD^{tree}", cwd=path)
    assert f"does not have commit {tree}" in refused(workshop, f"git:{path}@{tree}").message


def test_a_folder_that_is_no_repository(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    error = refused(workshop, f"git:{tmp_path / 'plain'}@{'1' * 40}")
    assert any("not a git repository" in line for line in error.details)


def test_a_partial_clone_offline_is_refused_unless_complete(
    workshop: Workshop,
    origin: Origin,
    tmp_path: Path,
    server: GitServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "clone"
    git("clone", "--quiet", "--filter=blob:none", "--no-checkout", f"{server.url}/tiny", path)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    before = len(server.requests)
    error = refused(workshop, f"git:{path}@{origin.release}")
    assert "lacks files of commit" in error.message
    assert len(server.requests) == before
    monkeypatch.delenv("MXTREE_OFFLINE")
    check_import(bring(workshop, f"git:{path}@{origin.release}"), origin, origin.release)


# URLs.


@pytest.mark.parametrize("which", ["first", "release", "head"])
def test_a_url_gives_any_commit_without_history(
    workshop: Workshop, origin: Origin, server: GitServer, which: str
) -> None:
    commit = getattr(origin, which)
    found = bring(workshop, f"git:{server.url}/tiny@{commit}")
    check_import(found, origin, commit)
    before = len(server.requests)
    assert bring(workshop, f"git:{server.url}/tiny@{commit}").cached
    assert len(server.requests) == before


def test_the_tag_of_a_url_is_asked_for_once(
    workshop: Workshop, origin: Origin, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.pins["tiny"]["repository"] = f"{server.url}/tiny"
    check_import(bring(workshop, "git"), origin, origin.release)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    before = len(server.requests)
    assert bring(workshop, "git").commit == origin.release
    assert len(server.requests) == before


def test_a_url_that_lacks_commit_tag_or_repository(workshop: Workshop, server: GitServer) -> None:
    error = refused(workshop, f"git:{server.url}/tiny@{'1' * 40}")
    assert error.message == f"{server.url}/tiny does not give commit {'1' * 40}"
    assert error.details
    assert "cannot be read" in refused(workshop, f"git:{server.url}/other").message
    release = workshop.upstream().release("1.0")
    upstream = replace(workshop.upstream(), releases={"1.0": replace(release, tag="w1.0")})
    with pytest.raises(FatalError, match=r"has no tag w1\.0") as caught:
        ensure_imported(workshop.project, upstream, "1.0", Source.parse(f"git:{server.url}/tiny"))
    assert caught.value.hint == "name the commit: --source git:URL@COMMIT"


def test_offline_a_url_is_not_asked(
    workshop: Workshop, origin: Origin, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    for source in (f"git:{server.url}/tiny@{origin.head}", f"git:{server.url}/tiny"):
        assert "MXTREE_OFFLINE forbids" in refused(workshop, source).message
    assert not server.requests
    # A clone on this machine needs no network.
    check_import(bring(workshop, f"git:{origin.path}@{origin.head}"), origin, origin.head)


def test_what_is_no_commit_is_refused(
    workshop: Workshop, origin: Origin, server: GitServer
) -> None:
    tree = git("rev-parse", "HEAD^{tree}", cwd=origin.path)
    with pytest.raises(FatalError, match=f"{tree} from .* is no commit"):
        bring(workshop, f"git:{server.url}/tiny@{tree}")


# The user's git configuration: transport and nothing else.


def test_the_users_credentials_rewrites_and_proxies_act(
    workshop: Workshop,
    origin: Origin,
    server: GitServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.login = "me:secret"
    monkeypatch.setenv("HOME", str(tmp_path))
    source = f"git:mirror:tiny@{origin.release}"
    settings = tmp_path / ".gitconfig"
    settings.write_text(f'[url "{server.url}/"]\n\tinsteadOf = mirror:\n')
    error = refused(workshop, source)
    assert any("could not read Username" in line for line in error.details)
    (tmp_path / "included").write_text(
        '[credential]\n\thelper = "!f() { echo username=me; echo password=secret; }; f"\n'
    )
    with settings.open("a") as stream:
        stream.write("[include]\n\tpath = included\n")
    check_import(bring(workshop, source), origin, origin.release)
    with settings.open("a") as stream:
        stream.write('[http]\n\tproxy = "http://127.0.0.1:9"\n')
    assert refused(workshop, f"git:mirror:tiny@{origin.head}").details


def test_other_settings_of_the_user_do_not_act(
    workshop: Workshop,
    origin: Origin,
    server: GitServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "reference-transaction").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "reference-transaction").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n[fetch]\n\tprune = true\n"
        "[safe]\n\tbareRepository = explicit\n"
    )
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere"))
    check_import(bring(workshop, f"git:{server.url}/tiny@{origin.release}"), origin, origin.release)
    check_import(bring(workshop, f"git:{origin.path}@{origin.head}"), origin, origin.head)


def test_a_lock_that_a_killed_git_left_does_not_stop_the_next_run(
    workshop: Workshop, origin: Origin, server: GitServer
) -> None:
    found = bring(workshop, f"git:{server.url}/tiny@{origin.first}")
    (found.repo / "shallow.lock").write_text("")
    ref = found.repo / "refs" / "mxtree" / "git" / f"{origin.head}.lock"
    ref.write_text("")
    check_import(bring(workshop, f"git:{server.url}/tiny@{origin.head}"), origin, origin.head)
