# SPDX-License-Identifier: Apache-2.0
"""Training checkpoints: resumed bit-identically, resharded, refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ranks

from mxflux.checkpoint.differences import compare
from mxflux.checkpoint.manifest import MANIFEST_NAME, read_manifest
from mxflux.checkpoint.verify import verify

FORMATS = ("dp_reshardable", "fully_reshardable")


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same names and bits."""
    assert found.keys() == expected.keys()
    assert [name for name in found if not np.array_equal(found[name], expected[name])] == []


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directories of this module."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def two(root: Path) -> list[dict[str, Any]]:
    """Saved and resumed by two data-parallel ranks."""
    return ranks.run("checkpoint_ranks:save_on_two", 2, timeout=300, root=str(root))


@pytest.fixture(scope="module")
def one(root: Path, two: list[dict[str, Any]]) -> dict[str, Any]:
    """The same resumed by one rank."""
    assert len(two) == 2
    (result,) = ranks.run("checkpoint_ranks:reshard_to_one", 1, timeout=300, root=str(root))
    return dict(result)


@pytest.fixture(scope="module")
def two_again(root: Path, one: dict[str, Any]) -> list[dict[str, Any]]:
    """What one rank saved, resumed by two."""
    assert one
    return ranks.run("checkpoint_ranks:reshard_to_two", 2, timeout=300, root=str(root))


@pytest.mark.parametrize("kind", [*FORMATS, "background"])
def test_resume_is_bit_identical(two: list[dict[str, Any]], kind: str) -> None:
    for result in two:
        assert result[kind]["losses"] == result["continued"]
        assert result[kind]["samples"] == 24
        assert result[kind]["position"] == 3
        assert set(result[kind]["restored"]) == {
            "optimizer", "scheduler", "loader", "counter", "random"
        }  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_one_rank_continues_what_two_saved(
    two: list[dict[str, Any]], one: dict[str, Any], kind: str
) -> None:
    assert one[kind]["losses"] == two[0]["continued"]
    assert one[kind]["lr"] == two[0][kind]["lr"]
    assert "random" not in one[kind]["restored"]
    assert_same(one[kind]["weights"], two[0][kind]["weights"])


@pytest.mark.parametrize("kind", FORMATS)
def test_two_ranks_continue_what_one_saved(
    two: list[dict[str, Any]], two_again: list[dict[str, Any]], kind: str
) -> None:
    for result in two_again:
        assert result[kind]["losses"] == two[0]["continued"]
        assert_same(result[kind]["weights"], two[0][kind]["weights"])


def test_generators_continue(two: list[dict[str, Any]]) -> None:
    for result in two:
        assert result["restored"] == result["following"]


def test_tensor_parallel_ranks_take_the_weights(
    root: Path, one: dict[str, Any], two_again: list[dict[str, Any]]
) -> None:
    for rank, result in enumerate(two_again):
        sharded = result["tensor weights"]
        assert (sharded.pop("restored"), sharded.pop("position")) == ((), 0)
        for name, part in sharded.items():
            whole = one["weights"][name]
            axis = next((d for d in range(part.ndim) if part.shape[d] != whole.shape[d]), None)
            expected = whole if axis is None else np.split(whole, 2, axis)[rank]
            assert np.array_equal(part, expected), name


def test_tensor_parallel_ranks_take_over_a_fully_reshardable_optimizer(
    root: Path, two_again: list[dict[str, Any]]
) -> None:
    assert len(two_again) == 2
    comparison = compare(root / "fully_reshardable", root / "tensor_two")
    assert comparison.differences == ()
    parameters = len(read_manifest(root / "tensor_two" / "latest" / MANIFEST_NAME).tensors)
    assert len(comparison.equal) == parameters  # weights, main weights and two moments


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("fixed loader", "the data loader was saved on 2 data-parallel ranks, this run has 1"),
        ("generators", "each rank's generators were saved (data-parallel size 2 != 1)"),
        ("buckets", "the optimizer state is stored in gradient buckets, which differ here"),
    ],
)  # fmt: skip
def test_what_cannot_be_continued_on_one_rank_is_refused(
    one: dict[str, Any], case: str, reason: str
) -> None:
    assert one[case].startswith("CheckpointError")
    assert reason in one[case]


def test_constants_of_the_run_are_in_effect_and_differences_are_noted(one: dict[str, Any]) -> None:
    found = one["other constants"]
    assert found["betas"] == (0.9, 0.9)
    for in_effect, expected in (found["lr"], found["next"]):
        assert in_effect == expected
    notes = "\n".join(found["notes"])
    assert "schedule max_lr: 0.001 of this run, not 0.002 as saved" in notes
    assert "optimizer betas: (0.9, 0.9) of this run, not (0.9, 0.999) as saved" in notes


def test_chained_optimizers_resume_with_another_learning_rate(tmp_path: Path) -> None:
    (found,) = ranks.run("checkpoint_ranks:resume_chained", 1, timeout=300, root=str(tmp_path))
    assert found["optimizers"] == 2
    for kind in FORMATS:
        assert found[kind]["losses"] == found["continued"]
        other = found[kind]["other constants"]
        for in_effect, expected in (other["lr"], other["next"]):
            assert in_effect == expected
        assert "optimizer max_lr: 0.001 of this run, not 0.002 as saved" in other["notes"]
    assert "state of 2 optimizer(s), this run has 1" in found["unchained"]
    nested = found["nested"]
    assert nested["notes"] == ["optimizer max_lr: 0.001 of this run, not 0.002 as saved"]
    assert nested["max_lr"] == [1e-3] * 5
    assert "state of 1 optimizer(s), this run has 2" in nested["too few"]


def test_other_refusals_say_why(two: list[dict[str, Any]], two_again: list[dict[str, Any]]) -> None:
    for result in two:
        assert "iter_0000003 exists" in result["again"]
        assert "optimizer_format='zero' is unknown" in result["format"]
    for result in two_again:
        assert "the optimizer was saved as dp_reshardable" in result["tensor"]
        assert "tensor-parallel size 1 != 2" in result["tensor"]


def test_a_background_save_is_published_when_it_is_complete(
    root: Path, two: list[dict[str, Any]]
) -> None:
    final = root / "background" / "checkpoints" / "iter_0000003"
    for result in two:
        assert result["not yet"] is False
        assert result["waited for"] is True
        after = root / "background after" / "checkpoints" / "iter_0000006"
        assert result["published"] == [str(final), str(after)]
    assert (root / "background" / "latest").resolve() == final


def test_a_file_that_no_rank_hashed_is_not_published(two: list[dict[str, Any]]) -> None:
    for result in two:
        name, error, published = result["missed"]
        assert f"not saved: no rank hashed {name}. " in error
        assert not published


def test_old_checkpoints_go(two: list[dict[str, Any]]) -> None:
    names = ["iter_0000003", "iter_0000004", "latest_checkpointed_iteration.txt"]
    assert [result["kept"] for result in two] == [names, names]


@pytest.mark.parametrize("kind", [*FORMATS, "background", "one_dp_reshardable"])
def test_manifests_tell_the_run(root: Path, one: dict[str, Any], kind: str) -> None:
    assert one
    folder = root / kind / "latest"
    assert folder.is_symlink()
    assert not folder.readlink().is_absolute()
    manifest = verify(folder)
    assert manifest == read_manifest(folder / MANIFEST_NAME)
    training = manifest.training
    assert training is not None
    assert training["progress"]["iteration"] == 3
    assert training["layout"]["data"] == (1 if kind.startswith("one") else 2)
    pieces = {piece.name for records in manifest.chunks.values() for piece in records}
    assert set(manifest.tensors) <= pieces
