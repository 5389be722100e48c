# SPDX-License-Identifier: Apache-2.0
"""A laboratory: an upstream with history and releases, the same releases as index imports."""

from __future__ import annotations

import hashlib
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from mxtree.drift.survey import survey
from mxtree.git import git, git_text
from mxtree.project import Project
from mxtree.series.canonical import format_range
from mxtree.upstreams import Source, repository
from mxtree.upstreams.content import File
from mxtree.upstreams.imports import repository_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mxtree.drift.model import Drift, SeriesDrift

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
sha256 = "{sha256}"
tree = "{tree}"
commit = "{commit}"
"""


@dataclass
class Lab:
    """Make releases and patches, then ask for the drift."""

    root: Path

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def project(self) -> Project:
        return Project(self.root / "project")

    def commit(self, files: Mapping[str, str | None], message: str = "change") -> str:
        """Commit files (None removes one) wherever HEAD is; return the id."""
        for name, text in files.items():
            path = self.upstream / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(textwrap.dedent(text).lstrip("\n"))
        git("add", "--all", "--force", cwd=self.upstream)
        env = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
        options = ("--quiet", "--allow-empty", "--file=-")
        git("commit", *options, cwd=self.upstream, stdin=message.encode(), env=env)
        return git_text("rev-parse", "HEAD", cwd=self.upstream)

    def release(self, version: str, files: Mapping[str, str | None]) -> None:
        """Commit files, tag and pin them as a release, and import it as if from the index."""
        commit = self.commit(files, f"Release {version}")
        git("tag", f"v{version}", cwd=self.upstream)
        tree = git_text("rev-parse", "HEAD^{tree}", cwd=self.upstream)
        sha256 = hashlib.sha256(version.encode()).hexdigest()
        self._import(version, sha256)
        path = self.project.upstreams_file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else _HEAD.format(repository=self.upstream)
        entry = _RELEASE.format(version=version, sha256=sha256, tree=tree, commit=commit)
        path.write_text(text + entry)

    def _import(self, version: str, sha256: str) -> None:
        names = git("ls-files", "-z", cwd=self.upstream).split(b"\0")[:-1]
        files = [
            File(name, b"100644", (self.upstream / name.decode()).read_bytes()) for name in names
        ]
        message = (
            f"Import {NAME} {version}\n\n"
            f"Tag: v{version}\nFile: {NAME}-{version}.tar.gz\nSHA256: {sha256}\n"
        )
        repo = repository_path(NAME)
        repo.parent.mkdir(parents=True, exist_ok=True)
        repository.create(repo)
        commit = repository.import_files(repo, files, message)
        repository.publish(repo, f"refs/mxtree/index/{sha256}", commit)

    def series(self, *patches: tuple[str, Mapping[str, str | None]], version: str = "1.0") -> None:
        """Write one patch for each (Changes field, files) on top of a release."""
        back = git_text("rev-parse", "--abbrev-ref", "HEAD", cwd=self.upstream)
        git("checkout", "--quiet", "--detach", f"v{version}", cwd=self.upstream)
        for number, (changes, files) in enumerate(patches, 1):
            fields = f"\nDescription: number {number}\n" + f"Changes: {changes}\n" * bool(changes)
            self.commit(files, f"Patch {number}\n{fields}")
        ends = [git_text("rev-parse", name, cwd=self.upstream) for name in (f"v{version}", "HEAD")]
        directory = self.project.series_dir(NAME, version)
        directory.mkdir(parents=True)
        names = []
        for number, raw in enumerate(format_range(self.upstream, *ends) if patches else (), 1):
            names.append(f"{number:04}-Patch-{number}.patch")
            (directory / names[-1]).write_bytes(raw)
        (directory / "series").write_text("".join(f"{name}\n" for name in names))
        git("checkout", "--quiet", back, cwd=self.upstream)

    def drift(self, *, from_git: bool = False, onto: str | None = None) -> SeriesDrift:
        """Return the drift, over the releases or over the commits."""
        source = Source.parse(f"git:{self.upstream}" if from_git else "index")
        return survey(self.project, [NAME], source, onto)[0]

    def one(self, *, from_git: bool = False, onto: str | None = None) -> Drift:
        """Return the drift of the only symbol of the only patch."""
        (patch,) = self.drift(from_git=from_git, onto=onto).patches
        (symbol,) = patch.symbols
        return symbol


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A laboratory with an empty upstream."""
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MXTREE_PROJECT", str(tmp_path / "project"))
    made = Lab(tmp_path)
    made.upstream.mkdir()
    git("init", "--quiet", "--initial-branch=main", cwd=made.upstream)
    return made
