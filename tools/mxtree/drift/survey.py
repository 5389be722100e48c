# SPDX-License-Identifier: Apache-2.0
"""The drift of the pinned series of upstreams."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from mxtree.drift.examine import Scene, examine
from mxtree.drift.model import SeriesDrift
from mxtree.drift.roads import History, Releases
from mxtree.drift.trees import Trees
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.git import run_git
from mxtree.rebase.bases import refuse_older
from mxtree.series import load_series
from mxtree.tree import repository
from mxtree.upstreams import Source, ensure_imported, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.drift.roads import Road
    from mxtree.project import Project
    from mxtree.series import Patch
    from mxtree.upstreams import Imported, Upstream


def survey(
    project: Project, names: Sequence[str], source: Source, onto: str | None
) -> tuple[SeriesDrift, ...]:
    """Return the drift of the named upstreams, of all by default; nothing is written.

    ``source`` is the index (every pinned release after the base, up to ``onto``) or a local git
    repository with history (every commit after the base up to ``onto``, by default its HEAD).
    Raises `FatalError` for anything else, and for a series that does not apply to its own base.
    """
    upstreams = load_upstreams(project)
    wanted = [upstreams.get(name) for name in dict.fromkeys(names or upstreams.names)]
    if source.kind == "dir" or (source.kind == "git" and source.path is None):
        raise FatalError(
            f"--source {source} has no history to look at",
            hint="use index, or clone the repository and name the clone: --source git:PATH",
        )
    if len(wanted) > 1 and (onto is not None or source.kind == "git"):
        raise FatalError(
            "--onto and --source git:PATH are for one upstream",
            hint=f"name it: mxtree drift {wanted[0].name} ...",
        )
    return tuple(
        _series(project, upstream, source, onto, is_asked=bool(names)) for upstream in wanted
    )


def _series(
    project: Project, upstream: Upstream, source: Source, onto: str | None, *, is_asked: bool
) -> SeriesDrift:
    directory = project.series_dir(upstream.name, upstream.default)
    told = SeriesDrift(upstream=upstream.name, base=upstream.default)
    if not directory.is_dir() and not is_asked:
        return told.model_copy(update={"problem": f"no series in {directory}"})
    patches = load_series(directory).patches
    base = ensure_imported(project, upstream, upstream.default, source)
    over: tuple[str, ...]
    if source.path is not None:
        theirs = Trees(source.path)
        history = _history(theirs, upstream, base, onto)
        road: Road = history
        over = (f"{upstream.default}..{onto or 'HEAD'} ({len(history)} commits)",)
    else:
        versions = _releases(project, upstream, base, source, onto)
        if not versions:
            problem = f"no pinned release is newer; mxtree fetch --pin {upstream.name}@VERSION"
            return told.model_copy(update={"problem": problem})
        theirs, road, over = Trees(base.repo), Releases(base.commit, versions), tuple(versions)
    with tempfile.TemporaryDirectory(prefix="mxtree-drift-") as folder:
        return _examined(Path(folder) / "work", patches, base, theirs, road).model_copy(
            update={"over": over}
        )


def _examined(
    work: Path, patches: Sequence[Patch], base: Imported, theirs: Trees, road: Road
) -> SeriesDrift:
    repository.create(work, base.repo)
    applied = apply_series(work, base.commit, patches)
    scene = Scene(theirs, base.commit, road, Trees(work))
    return SeriesDrift(
        upstream=base.upstream,
        base=base.version,
        patches=tuple(examine(scene, item) for item in applied),
    )


def _releases(
    project: Project, upstream: Upstream, base: Imported, source: Source, onto: str | None
) -> dict[str, str]:
    """Return the commits of the releases after the base by version, oldest first."""
    last = None
    if onto is not None:
        by_tag = {release.tag: version for version, release in upstream.releases.items()}
        last = upstream.release(by_tag.get(onto, onto)).version
        refuse_older(base, ensure_imported(project, upstream, last, source), backport=False)
    newer = sorted(
        (
            version
            for version in upstream.releases
            if Version(base.version) < Version(version)
            and (last is None or Version(version) <= Version(last))
        ),
        key=Version,
    )
    return {v: ensure_imported(project, upstream, v, source).commit for v in newer}


def _history(theirs: Trees, upstream: Upstream, base: Imported, onto: str | None) -> History:
    end = _revision(theirs, upstream, onto or "HEAD")
    found = run_git("merge-base", base.commit, end, cwd=theirs.repo, ok=range(256))
    start = found.stdout.decode().strip()
    if found.returncode or not start:
        raise FatalError(
            f"{theirs.repo} has no history that joins {base.version} ({base.commit[:12]}) and "
            f"{onto or 'HEAD'}",
            hint=f"complete it: git -C '{theirs.repo}' fetch --unshallow --tags",
            code=ExitCode.COULD_NOT_CHECK,
        )
    if start == end != base.commit:
        raise FatalError(
            f"{onto or 'HEAD'} is older than {base.version}, the release the series is made for",
            hint="name a newer tag, branch or commit with --onto",
        )
    return History(theirs, start, end)


def _revision(theirs: Trees, upstream: Upstream, wanted: str) -> str:
    """Return the commit of a pinned version, a tag, a branch or a commit id."""
    names = [wanted]
    for release in upstream.releases.values():
        if wanted in {release.version, release.tag}:
            names = [*filter(None, [release.commit]), f"refs/tags/{release.tag}"]
    for name in names:
        query = ("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
        found = run_git(*query, cwd=theirs.repo, ok=range(256)).stdout.decode().strip()
        if found:
            return found
    raise FatalError(
        f"{theirs.repo} has no revision {wanted!r}",
        hint=f"fetch it (git -C '{theirs.repo}' fetch --tags), or name another one with --onto",
    )
