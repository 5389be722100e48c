# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints stay, what a path means, and the `latest` link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.locate import locate
from mxflux.checkpoint.retention import discard_leftovers, latest_link, prune, publish_latest
from mxflux.checkpoint.tracker import checkpoint_folder, write_tracker

if TYPE_CHECKING:
    from pathlib import Path


def make(root: Path, *iterations: int) -> None:
    for iteration in iterations:
        checkpoint_folder(root, iteration).mkdir(parents=True)


def names(root: Path) -> list[str]:
    return sorted(p.name for p in root.iterdir() if p.name.startswith(("iter_", ".")))


@pytest.mark.parametrize(
    ("keep", "latest", "kept"),
    [
        (1, 3, [3]),
        (2, 3, [2, 3]),
        (9, 3, [1, 2, 3]),
        (1, 2, [2, 3]),  # what is newer than the tracker may be a save under way elsewhere
        (1, 1, [1, 2, 3]),
    ],
)
def test_the_newest_stay_and_what_the_tracker_names_always(
    tmp_path: Path, keep: int, latest: int, kept: list[int]
) -> None:
    make(tmp_path, 1, 2, 3)
    write_tracker(tmp_path, latest)
    prune(tmp_path, keep)
    assert names(tmp_path) == [f"iter_{iteration:07d}" for iteration in kept]


def test_what_the_link_points_at_stays(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    make(root, 1, 2, 3)
    write_tracker(root, 3)
    publish_latest(tmp_path, 1)  # a job that died between tracker and link
    prune(root, 1, latest_link(tmp_path))
    assert names(root) == ["iter_0000001", "iter_0000003"]


def test_without_a_tracker_nothing_goes(tmp_path: Path) -> None:
    make(tmp_path, 1, 2)
    assert prune(tmp_path, 1) == []
    with pytest.raises(ValueError, match="keep=0"):
        prune(tmp_path, 0)


def test_leftovers_go_and_checkpoints_stay(tmp_path: Path) -> None:
    make(tmp_path, 1)
    (tmp_path / ".iter_0000002.partial").mkdir()
    (tmp_path / ".iter_0000000.removed").mkdir()
    assert len(discard_leftovers(tmp_path)) == 2
    assert names(tmp_path) == ["iter_0000001"]


def test_link_is_relative_and_replaced(tmp_path: Path) -> None:
    make(tmp_path / "run" / "checkpoints", 1, 2)
    for iteration in (1, 2):
        link = publish_latest(tmp_path / "run", iteration)
    assert str(link.readlink()) == "checkpoints/iter_0000002"
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert latest_link(moved) == moved / "checkpoints" / "iter_0000002"
    assert [p.name for p in moved.iterdir() if p.is_symlink()] == ["latest"]


def test_a_run_means_what_its_tracker_names(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    make(root, 1, 10_000_000)
    with pytest.raises(CheckpointError, match=r"name one of: iter_0000001, iter_10000000"):
        locate(tmp_path)
    write_tracker(root, 1)
    assert locate(tmp_path) == locate(root) == locate(root / "iter_0000001")
    assert locate(tmp_path) == (root / "iter_0000001").resolve()
    with pytest.raises(CheckpointError, match="none does not exist"):
        locate(tmp_path / "none")
