# SPDX-License-Identifier: Apache-2.0
"""A laboratory: an upstream with history in a real git repository, and a series on its v1.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from mxtree.git import git, git_text
from mxtree.project import Project
from mxtree.rebase.session import Session
from mxtree.rebase.verbs import Options, request
from mxtree.series.canonical import format_range
from mxtree.upstreams import load_upstreams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.rebase.model import Rebase

NAME = "thing"

_HEAD = """schema = 1

[upstream.thing]
package = "thing"
packaging = "sdist"
default = "1.0"
repository = "{repository}"
tag = "v{{version}}"
"""

_RELEASE = """
[upstream.thing.release."{version}"]
file = "thing-{version}.tar.gz"
sha256 = "{zeros}"
tree = "{tree}"
commit = "{commit}"
"""


@dataclass
class Lab:
    """Make upstream history and patches, then rebase."""

    root: Path

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def project(self) -> Project:
        return Project(self.root / "project")

    @property
    def session(self) -> Session:
        return Session(self.project, NAME)

    def commit(self, files: Mapping[str, str | None], message: str = "change") -> str:
        """Commit files in the upstream repository, wherever its HEAD is."""
        for name, text in files.items():
            path = self.upstream / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        git("add", "--all", "--force", cwd=self.upstream)
        env = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
        options = ("--quiet", "--allow-empty", "--file=-")
        git("commit", *options, cwd=self.upstream, stdin=message.encode(), env=env)
        return git_text("rev-parse", "HEAD", cwd=self.upstream)

    def release(self, version: str) -> str:
        """Tag the upstream's HEAD as a release and pin it."""
        git("tag", f"v{version}", cwd=self.upstream)
        commit = git_text("rev-parse", "HEAD", cwd=self.upstream)
        tree = git_text("rev-parse", "HEAD^{tree}", cwd=self.upstream)
        path = self.project.upstreams_file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else _HEAD.format(repository=self.upstream)
        entry = _RELEASE.format(version=version, zeros="0" * 64, tree=tree, commit=commit)
        path.write_text(text + entry)
        return commit

    def series(self, *patches: Mapping[str, str | None], version: str = "1.0") -> None:
        """Write one patch for each change, on top of a release."""
        git("checkout", "--quiet", "--detach", f"v{version}", cwd=self.upstream)
        for number, files in enumerate(patches, 1):
            self.commit(files, f"Patch {number}\n\nDescription: number {number}\n")
        ends = [git_text("rev-parse", name, cwd=self.upstream) for name in (f"v{version}", "HEAD")]
        raw = format_range(self.upstream, *ends) if patches else ()
        directory = self.project.series_dir(NAME, version)
        directory.mkdir(parents=True)
        names = [f"{number:04}-Patch-{number}.patch" for number in range(1, len(raw) + 1)]
        for name, data in zip(names, raw, strict=True):
            (directory / name).write_bytes(data)
        (directory / "series").write_text("".join(f"{name}\n" for name in names))
        git("checkout", "--quiet", "main", cwd=self.upstream)

    def start(self, onto: str = "2.0", **options: object) -> Rebase:
        """Begin a rebase onto a release, from the upstream's git repository."""
        upstream = load_upstreams(self.project).get(NAME)
        given = Options(upstream=NAME, onto=onto, source=f"git:{self.upstream}", **options)
        return self.session.start(request(self.project, upstream, given))

    def file(self, name: str) -> str:
        """Return a file of the private work tree."""
        return (self.session.store.work / name).read_text()

    def resolve(self, files: Mapping[str, str]) -> None:
        """Write and stage files in the private work tree, as a user does."""
        for name, text in files.items():
            (self.session.store.work / name).write_text(text)
            git("add", name, cwd=self.session.store.work)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A laboratory with an empty upstream."""
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    made = Lab(tmp_path)
    made.upstream.mkdir()
    git("init", "--quiet", "--initial-branch=main", cwd=made.upstream)
    return made
