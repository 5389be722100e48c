# SPDX-License-Identifier: Apache-2.0
"""A small project with two upstreams in local git repositories: everything real, nothing big."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import pytest

from mxtree.git import git, git_text
from mxtree.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Names, version and tag of the two upstreams; the real ones, so that the CLI's options fit.
UPSTREAMS = {"megatron-lm": ("1.0", "core_v1.0"), "transformer-engine": ("2.0", "v2.0")}

_ENTRY = """
[upstream.{name}]
package = "{name}"
packaging = "sdist"
default = "{version}"
repository = "{repository}"
tag = "{pattern}"

[upstream.{name}.release."{version}"]
file = "{name}-{version}.tar.gz"
sha256 = "{zeros}"
tree = "{tree}"
commit = "{commit}"
"""

_MESSAGE = """Teach {name} to count

Description: It could not.
Origin: vendor, mxtree authors
Upstream-Status: Pending
Changes: code.count
Proven-By: tests/tree/test_code.py::test_count
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose upstreams are git repositories with one patch each."""
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MXTREE_PROJECT", str(tmp_path / "project"))
    root = tmp_path / "project"
    entries = [_make_upstream(tmp_path, root, name) for name in UPSTREAMS]
    (root / "patches" / "upstreams.toml").write_text("schema = 1\n" + "".join(entries))
    (root / "overlay" / "mxflux").mkdir(parents=True)
    (root / "overlay" / "mxflux" / "__init__.py").write_text("")
    return Project(root)


def _make_upstream(folder: Path, root: Path, name: str) -> str:
    version, tag = UPSTREAMS[name]
    repository = folder / "upstream" / name
    repository.mkdir(parents=True)
    git("init", "--quiet", cwd=repository)
    (repository / "code.py").write_text("def count():\n    return None\n")
    (repository / "pkg.egg-info").mkdir()
    (repository / "pkg.egg-info" / "PKG-INFO").write_text("Name: pkg\n")
    commit = _commit(repository, "Release")
    git("tag", tag, cwd=repository)
    tree = git_text("rev-parse", "HEAD^{tree}", cwd=repository)
    (repository / "code.py").write_text("def count():\n    return 1\n")
    _commit(repository, _MESSAGE.format(name=name))
    write_series(repository, commit, root / "patches" / name / version)
    return _ENTRY.format(
        name=name,
        version=version,
        repository=repository,
        pattern=tag.replace(version, "{version}"),
        zeros="0" * 64,
        tree=tree,
        commit=commit,
    )


def _commit(repository: Path, message: str) -> str:
    git("add", "--all", "--force", cwd=repository)
    env = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    git("commit", "--quiet", "--file=-", cwd=repository, stdin=message.encode(), env=env)
    return git_text("rev-parse", "HEAD", cwd=repository)


def write_series(repository: Path, base: str, directory: Path) -> None:
    """Write the commits after ``base`` as a series with git's own format-patch."""
    directory.mkdir(parents=True)
    options = shlex.split(
        "--pretty=mboxrd --keep-subject --always --binary --full-index --zero-commit"
        " --no-signature --no-stat --no-cover-letter --no-attach --no-thread --no-to --no-cc"
        " --no-add-header --no-notes --no-base --no-signoff --no-numbered"
    )
    names = git("format-patch", *options, "-o", directory, base, cwd=repository).decode()
    listed = [name.rpartition("/")[2] for name in names.splitlines()]
    (directory / "series").write_text("".join(f"{name}\n" for name in listed))


class Runner(Protocol):
    """Run the command line in a process of its own, as a user does."""

    def __call__(
        self, *args: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def mxtree(project: Project) -> Runner:
    """The command line on `project`."""

    def run(
        *args: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mxtree", *map(str, args)],
            text=True,
            capture_output=True,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | dict(env or {}),
            cwd=project.root,
        )

    return run
