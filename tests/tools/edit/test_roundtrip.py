# SPDX-License-Identifier: Apache-2.0
"""export(build(series)) is the series, byte for byte, for generated histories of any kind."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from random_history import Commit, histories, repository

from mxtree.edit.export import plan_exports, write_exports
from mxtree.edit.notes import write_notes
from mxtree.engine import apply_series
from mxtree.git import git, git_text
from mxtree.project import Project
from mxtree.series import load_series
from mxtree.tree import repository as tree_repository
from mxtree.tree.manifest import Manifest, UpstreamRecord, load_manifest
from mxtree.tree.records import upstream_record
from mxtree.tree.verify import verify

NAME, VERSION = "thing", "1.0"


def _stock_tree(folder: Path, repo: Path, base: str) -> Path:
    """Make a tree without patches whose only upstream is the base of a generated history."""
    tree = folder / "tree"
    tree.mkdir()
    tree_repository.create(tree / NAME, repo)
    tree_repository.check_out(tree / NAME, base=base, tag="v1.0", head=base)
    record = UpstreamRecord(
        version=VERSION,
        tag="v1.0",
        source={"kind": "dir"},
        base_commit=base,
        base_tree=git_text("rev-parse", f"{base}^{{tree}}", cwd=repo),
        head_commit=base,
        head_tree=git_text("rev-parse", f"{base}^{{tree}}", cwd=repo),
        patches=(),
    )
    _write_manifest(tree, record)
    return tree


def _write_manifest(tree: Path, record: UpstreamRecord) -> None:
    manifest = Manifest(
        tool_version="0", patched=True, digest="", inputs="", upstreams={NAME: record}, folders={}
    )
    manifest.model_copy(update={"digest": manifest.compute_digest()}).write(tree)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(histories())
def test_commits_become_a_series_and_the_series_the_same_commits(history: list[Commit]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="roundtrip-"))
    try:
        with repository(history) as (repo, ids):
            base, tip = ids[0], ids[-1]
            tree, project = _stock_tree(folder, repo, base), Project(folder / "project")
            git("reset", "--quiet", "--hard", tip, cwd=tree / NAME)
            write_exports(tree, plan_exports(project, tree))
        directory = project.series_dir(NAME, VERSION)
        first = {path.name: path.read_bytes() for path in directory.iterdir()}
        assert verify(tree) == []
        assert git_text("rev-parse", "HEAD^{tree}", cwd=tree / NAME) == _tree_of(tree, tip)
        _rebuild(tree, directory)
        exports = plan_exports(project, tree, refresh=True)
        assert exports[0].plan.is_clean
        write_exports(tree, exports)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == first
    finally:
        shutil.rmtree(folder)


def _tree_of(tree: Path, commit: str) -> str:
    return git_text("rev-parse", f"{commit}^{{tree}}", cwd=tree / NAME)


def _rebuild(tree: Path, directory: Path) -> None:
    """Apply the series anew, as a build does, with nothing in the manifest to lean on."""
    record = load_manifest(tree).upstreams[NAME]
    series = load_series(directory).patches
    applied = apply_series(tree / NAME, record.base_commit, series)
    made = upstream_record(record, applied)
    git("reset", "--quiet", "--hard", made.head_commit, cwd=tree / NAME)
    write_notes(tree / NAME, {item.commit: item.patch.name for item in applied})
    _write_manifest(tree, made.model_copy(update={"patches": ()}))
