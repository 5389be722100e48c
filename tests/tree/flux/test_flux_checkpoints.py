# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of Flux: keys, resharding, strictness, verification, conversion."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import flux_tiny as tiny
import pytest
import torch
from support import ranks

from mxflux.checkpoint.convert import convert
from mxflux.checkpoint.manifest import MANIFEST_NAME
from mxflux.checkpoint.native_view import NativeView
from mxflux.checkpoint.sources import open_checkpoint
from mxflux.checkpoint.tracker import read_tracker
from mxflux.checkpoint.verify import verify


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two ranks save and load."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def by_rank(root: Path) -> list[dict[str, Any]]:
    """What two ranks report about saving, loading and resharding."""
    return ranks.run("flux_ranks:save_and_reshard", 2, root=str(root))


@pytest.fixture(scope="module")
def folder(root: Path, by_rank: list[dict[str, Any]]) -> Path:
    """The checkpoint that two tensor-parallel ranks saved."""
    assert len(by_rank) == 2
    return root / "iter_0000003"


def test_saved_folders_are_complete_named_by_the_tracker_and_verifiable(
    root: Path, folder: Path
) -> None:
    assert read_tracker(root) == 5
    folders = [folder, root / "iter_0000004", root / "iter_0000005"]
    names = [*(path.name for path in folders), "latest_checkpointed_iteration.txt"]
    assert sorted(p.name for p in root.iterdir()) == names
    for saved in folders:
        manifest = verify(saved)
        shapes = {name: tuple(record.shape) for name, record in manifest.tensors.items()}
        assert shapes == tiny.ARCHITECTURE.parameter_shapes()
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata"} <= set(verify(folder).files)


@pytest.mark.parametrize("case", ["2 to 2", "2 to 1", "1 to 2", "saved in the background"])
def test_reshards_between_one_and_two_tensor_parallel_ranks(
    by_rank: list[dict[str, Any]], case: str
) -> None:
    assert [result[case] for result in by_rank] == [[], []]


def test_existing_iteration_is_refused_on_every_rank(by_rank: list[dict[str, Any]]) -> None:
    for result in by_rank:
        assert result["again"].startswith("FileExistsError")
        assert "iter_0000003 exists" in result["again"]


def test_converts_to_a_diffusers_folder_and_back(folder: Path, tmp_path: Path) -> None:
    view = NativeView(open_checkpoint(folder))
    for name, tensor in tiny.full_state().items():
        assert torch.equal(view.load(name), tensor.float()), name
    convert(folder, tmp_path / "hf", to="diffusers")
    convert(tmp_path / "hf", tmp_path / "megatron", to="megatron")
    verify(tmp_path / "megatron")
    assert ranks.run("flux_ranks:load_converted", 1, folder=str(tmp_path / "megatron")) == [[]]


def test_keys_are_global_and_homogeneous_ones_cannot_be_saved() -> None:
    result = ranks.run("flux_ranks:sharded_keys", 1)[0]
    expected = {name: (0, shape) for name, shape in tiny.ARCHITECTURE.parameter_shapes().items()}
    assert result["keys"] == expected
    assert result["homogeneous"] != "no error"


def test_load_refuses_what_differs_and_says_what(folder: Path, tmp_path: Path) -> None:
    flipped = shutil.copytree(folder, tmp_path / "flipped")
    data = bytearray((flipped / "__1_0.distcp").read_bytes())
    data[len(data) // 2] ^= 4
    (flipped / "__1_0.distcp").write_bytes(data)
    cut = shutil.copytree(folder, tmp_path / "cut")
    (cut / "__0_0.distcp").write_bytes((cut / "__0_0.distcp").read_bytes()[:-10])
    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / MANIFEST_NAME).unlink()
    missing = tmp_path / "none"
    cases = [
        (flipped, {}, "file __1_0.distcp: contents changed"),
        (cut, {}, "file __0_0.distcp: truncated"),
        (bare, {}, "there is no manifest"),
        (missing, {}, "there is no manifest"),
        (folder, {"guidance_embed": True}, "missing: guidance_embedding.in_layer.weight (64, 256)"),
        (folder, {"num_single_layers": 1}, "unexpected: transformer.layers.3.adaln"),
        (folder, {"context_dim": 24}, "shape: txt_embed.weight is (64, 20), expected (64, 24)"),
        (folder, {"dtype": "bfloat16"}, "dtype: img_embed.weight is torch.float32"),
    ]
    got = ranks.run(
        "flux_ranks:refusals", 1, cases=[(str(path), fields) for path, fields, _ in cases]
    )[0]
    for message, (path, fields, expected) in zip(got, cases, strict=True):
        assert expected in message, (path, fields)


def test_a_save_killed_at_any_operation_leaves_a_verifiable_checkpoint(tmp_path: Path) -> None:
    script = Path(__file__).with_name("flux_killed_saves.py")
    path = os.pathsep.join(filter(None, sys.path))
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        subprocess.run(
            [sys.executable, "-W", "ignore", str(script), str(tmp_path / "runs")],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.DEVNULL,
            timeout=120,
            check=True,
        )
    report = json.loads(printed.read_text().splitlines()[-1])
    killed, survived = report["outcomes"][:-1], report["outcomes"][-1]
    assert len(killed) >= 10
    assert {outcome["ended"] for outcome in killed} == {-signal.SIGKILL}
    # Before the rename, between rename and tracker, and after the tracker.
    assert [outcome["latest"] for outcome in killed] == sorted(o["latest"] for o in killed)
    assert {outcome["latest"] for outcome in killed} == {1, 2}
    assert any(o["latest"] == 1 and "iter_0000002" in o["entries"] for o in killed)
    assert (survived["ended"], survived["latest"]) == (0, 2)
    assert (report["redone"], report["latest"]) == (0, 2)
