# SPDX-License-Identifier: Apache-2.0
"""Add a release to `patches/upstreams.toml`: hashes computed, comments and order kept."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from packaging.version import Version
from pypi_simple import UnparsableFilenameError, parse_filename

from mxtree.cache import is_offline
from mxtree.errors import ExitCode, FatalError
from mxtree.git import GitError
from mxtree.upstreams.archive import read_archive
from mxtree.upstreams.config import Release, Upstream, nearest
from mxtree.upstreams.download import ensure_downloaded
from mxtree.upstreams.git_import import commit_of_remote_tag
from mxtree.upstreams.index import Index, Offer
from mxtree.upstreams.load import SUFFIXES, load_upstreams, parse_upstreams
from mxtree.upstreams.objects import tree_id
from mxtree.upstreams.pip_settings import read_pip_settings
from mxtree.upstreams.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.project import Project


def pin(project: Project, name: str, version: str) -> tuple[str, bool]:
    """Pin a release that the index has, and return its entry and whether it was added now.

    Raises `FatalError` when the index lacks it or gives no hash for it, and when it is pinned
    already with other hashes.
    """
    upstream = load_upstreams(project).get(name)
    release = _describe(upstream, version)
    entry = _entry(upstream, release)
    known = upstream.releases.get(version)
    if known is None:
        _add(project, upstream, release, entry)
        return entry, True
    if (known.file, known.sha256, known.tree) != (release.file, release.sha256, release.tree):
        raise FatalError(
            f"{name} {version} is pinned already, as something else than the index has",
            details=["the index has:", *entry.splitlines()],
            code=ExitCode.CHECK_FAILED,
        )
    return entry, False


def _describe(upstream: Upstream, version: str) -> Release:
    offer = _offer(upstream, version)
    if offer.sha256 is None:
        raise FatalError(
            f"{offer.place} gives no sha256 for {offer.file}, so it cannot be pinned from there",
            code=ExitCode.COULD_NOT_CHECK,
        )
    tag = upstream.tag_pattern.format(version=version)
    known = upstream.releases.get(version)
    bare = Release(version, known.tag if known else tag, offer.file, offer.sha256, None, "")
    tree = tree_id(read_archive(ensure_downloaded(upstream, bare).path))
    commit = known.commit if known else _commit(upstream, bare.tag)
    return Release(version, bare.tag, offer.file, offer.sha256, commit, tree)


def newest(upstream: Upstream) -> Release:
    """Return the newest release that the index has, pinned or not; pre-releases do not count.

    Raises `FatalError` when no index can be asked.
    """
    settings = read_pip_settings()
    with open_session(settings) as session:
        index = Index(session, settings, offline=is_offline())
        offers = index.offers(upstream.package, lambda file: bool(_version(upstream, file)))
        versions = {Version(_version(upstream, offer.file) or "0") for offer in offers}
    final = [version for version in versions if not version.is_prerelease]
    if not final:
        raise FatalError(
            f"no index that pip is configured with has a {upstream.packaging} of "
            f"{upstream.package}",
            details=[*index.notes],
            code=ExitCode.COULD_NOT_CHECK,
        )
    version = str(max(final))
    return upstream.releases.get(version) or _describe(upstream, version)


def _offer(upstream: Upstream, version: str) -> Offer:
    versions: dict[str, Offer] = {}
    settings = read_pip_settings()
    with open_session(settings) as session:
        index = Index(session, settings, offline=is_offline())
        for offer in index.offers(upstream.package, lambda file: bool(_version(upstream, file))):
            versions.setdefault(_version(upstream, offer.file) or "", offer)
            if version in versions:
                return versions[version]
    near = ", ".join(nearest(version, versions)) or "none"
    raise FatalError(
        f"no index that pip is configured with has the {upstream.packaging} of "
        f"{upstream.package} {version}",
        details=[*index.notes, f"nearest versions there: {near}"],
        code=ExitCode.COULD_NOT_CHECK,
    )


def _version(upstream: Upstream, file: str) -> str | None:
    """Return the version of a file that is this upstream's kind of release, else None."""
    if not file.endswith(SUFFIXES[upstream.packaging]):
        return None
    try:
        return parse_filename(file, project_hint=upstream.package)[1]
    except UnparsableFilenameError:
        return None


def _commit(upstream: Upstream, tag: str) -> str | None:
    """Return the commit of the tag in the public repository; None, and a note, if not known."""
    commit = None
    if not is_offline():
        with contextlib.suppress(GitError):
            commit = commit_of_remote_tag(upstream.repository, tag)
    if commit is None:
        print(
            f"note: no commit pinned: {upstream.repository} has no tag {tag} or cannot be asked; "
            "add tag and commit by hand if upstream named it otherwise",
            file=sys.stderr,
        )
    return commit


def _entry(upstream: Upstream, release: Release) -> str:
    lines = [
        f'[upstream.{upstream.name}.release."{release.version}"]',
        f'file = "{release.file}"',
        f'sha256 = "{release.sha256}"',
        f'tree = "{release.tree}"',
    ]
    if release.commit:
        lines.append(f'commit = "{release.commit}"')
    return "\n".join(lines) + "\n"


def _add(project: Project, upstream: Upstream, release: Release, entry: str) -> None:
    path = project.upstreams_file
    text = "".join(_with_entry(path.read_text(encoding="utf-8"), upstream.name, entry))
    problem = _problem(text, path, upstream.name, release)
    if problem is not None:
        raise FatalError(
            f"{path} is written in a way that mxtree cannot extend",
            details=[*problem, "add this to it:", *entry.splitlines()],
        )
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _problem(text: str, path: Path, name: str, release: Release) -> list[str] | None:
    """Return why ``text`` would not pin the release; None when it does."""
    try:
        found = parse_upstreams(text, path).get(name).releases.get(release.version)
    except FatalError as error:
        return [error.message, *error.details]
    return None if found == release else ["the new entry would not be read as it is"]


def _with_entry(text: str, name: str, entry: str) -> Iterator[str]:
    """Yield the lines of the file with the entry behind the upstream's last table."""
    lines = text.splitlines(keepends=True)
    headers = [number for number, line in enumerate(lines) if line.startswith("[")]
    ours = (f"[upstream.{name}]", f"[upstream.{name}.")
    mine = [number for number in headers if lines[number].startswith(ours)]
    end = next((number for number in headers if mine and number > mine[-1]), len(lines))
    # Comments and blank lines in front of the next table belong to that table.
    while lines[end - 1].strip() == "" or lines[end - 1].startswith("#"):
        end -= 1
    yield from lines[:end]
    yield "\n"
    yield entry
    yield from lines[end:]
