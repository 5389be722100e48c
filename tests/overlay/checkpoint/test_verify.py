# SPDX-License-Identifier: Apache-2.0
"""Every kind of damage to a checkpoint is found and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from native_folder import TINY, native_state, write_native

from mxflux.checkpoint.convert import convert
from mxflux.checkpoint.dcp import DistributedTensors
from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.manifest import MANIFEST_NAME, manifest_digest
from mxflux.checkpoint.model_state import load_model_state
from mxflux.checkpoint.native_view import NativeView
from mxflux.checkpoint.publish import published_folder
from mxflux.checkpoint.sources import open_checkpoint
from mxflux.checkpoint.tracker import checkpoint_folder, read_tracker, write_tracker
from mxflux.checkpoint.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = {"diffusers": "hf", "mxflux": "native2", "megatron": "megatron", "bfl": "flux.safetensors"}
FOLDERS = ["diffusers", "mxflux", "megatron"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("originals")
    native = write_native(root / "native", TINY, native_state(TINY))
    for layout, name in FORMS.items():
        convert(native, root / name, to=layout, max_shard_bytes=30_000)
    return root


@pytest.fixture
def copies(originals: Path, tmp_path: Path) -> Path:
    shutil.copytree(originals, tmp_path / "copies")
    return tmp_path / "copies"


@pytest.mark.parametrize("layout", FORMS)
def test_undamaged_checkpoints_pass(originals: Path, layout: str) -> None:
    assert verify(originals / FORMS[layout]).layout == layout


def data_file(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda file: (file.name != MANIFEST_NAME, file.stat().st_size))


def flip(folder: Path) -> None:
    file = data_file(folder)
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


def edit_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / MANIFEST_NAME
        values = json.loads(path.read_text())
        change(values["tensors"])
        values.pop("sha256")
        path.write_text(json.dumps({**values, "sha256": manifest_digest(values)}))

    return edit


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (flip, r"file .*: contents changed(.|\n)*tensor \S+(: SHA-256 differs|\Z)"),
    "edited manifest": (
        lambda f: (f / MANIFEST_NAME).write_text(
            (f / MANIFEST_NAME).read_text().replace('"BF16"', '"F16"', 1)
        ),
        r"mxflux_manifest.json: contents changed",
    ),
    "truncated": (lambda f: data_file(f).write_bytes(data_file(f).read_bytes()[:-1]), "truncated"),
    "longer": (
        lambda f: data_file(f).write_bytes(data_file(f).read_bytes() + b"x"),
        "longer than recorded",
    ),
    "missing": (lambda f: data_file(f).unlink(), "missing file"),
    "extra": (lambda f: (f / "left.over").write_text(""), "extra file: left.over"),
    "extra key": (edit_manifest(lambda t: t.pop(next(iter(t)))), "extra tensor"),
    "missing key": (
        edit_manifest(lambda t: t.update(ghost=next(iter(t.values())))),
        "missing tensor: ghost",
    ),
    "dtype": (
        edit_manifest(lambda t: next(iter(t.values())).update(dtype="F32")),
        "dtype BF16, recorded F32",
    ),
    "shape": (edit_manifest(lambda t: next(iter(t.values())).update(shape=[1])), r"recorded \[1\]"),
    "tensor hash": (
        edit_manifest(lambda t: next(iter(t.values())).update(sha256="0" * 64)),
        "SHA-256 differs",
    ),
}


@pytest.mark.parametrize("layout", FOLDERS)
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(copies: Path, layout: str, kind: str) -> None:
    damage, message = DAMAGE[kind]
    folder = copies / FORMS[layout]
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        verify(folder)


def test_damaged_bfl_file(copies: Path) -> None:
    file = copies / FORMS["bfl"]
    data = bytearray(file.read_bytes())
    data[-1] ^= 0x80
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"flux.safetensors: contents changed"):
        verify(file)


def test_without_a_manifest_nothing_is_verified(copies: Path) -> None:
    (copies / "hf" / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointError, match="there is no manifest"):
        verify(copies / "hf")


def test_manifest_of_a_later_format_is_refused(copies: Path) -> None:
    path = copies / "hf" / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 2}))
    with pytest.raises(CheckpointError, match="format 2, this release reads 1"):
        verify(copies / "hf")


# -- Megatron folders -----------------------------------------------------------------------


def test_megatron_round_trip_is_bit_exact(originals: Path) -> None:
    view = NativeView(open_checkpoint(originals / "megatron"))
    for name, tensor in native_state(TINY).items():
        assert torch.equal(view.load(name), tensor), name


def test_megatron_folder_without_manifest_needs_the_architecture(copies: Path) -> None:
    (copies / "megatron" / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointError, match="to tell the architecture: give it"):
        open_checkpoint(copies / "megatron")
    assert open_checkpoint(copies / "megatron", TINY).architecture == TINY


def test_other_backends_and_missing_metadata_are_named(copies: Path) -> None:
    (copies / "megatron" / ".metadata").unlink()
    with pytest.raises(CheckpointError, match=r"no readable .metadata"):
        DistributedTensors(copies / "megatron")
    (copies / "megatron" / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    with pytest.raises(CheckpointError, match="sharded_backend is 'zarr'"):
        open_checkpoint(copies / "megatron")


def test_model_state_is_strict_but_for_extra_state() -> None:
    model = torch.nn.Linear(2, 3)
    state = {"weight": torch.ones(3, 2), "bias": torch.ones(3), "core._extra_state": None}
    load_model_state(model, state)
    assert model.weight.sum() == 6
    state = {"weight": torch.zeros(3, 2), "q_layernorm.weight": torch.ones(3)}
    with pytest.raises(CheckpointError) as caught:
        load_model_state(model, state)
    assert caught.value.problems == ("missing: bias", "unexpected: q_layernorm.weight")
    assert model.weight.sum() == 6


# -- publication and tracker ----------------------------------------------------------------


def test_a_failed_publication_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with published_folder(tmp_path / "out") as scratch:
            (scratch / "a").write_text("b")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert not list(tmp_path.iterdir())


def test_tracker(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint to resume from"):
        read_tracker(tmp_path)
    write_tracker(tmp_path, 12)
    with pytest.raises(CheckpointError, match="iter_0000012 is missing"):
        read_tracker(tmp_path)
    checkpoint_folder(tmp_path, 12).mkdir()
    assert read_tracker(tmp_path) == 12
    assert sorted(p.name for p in tmp_path.iterdir())[0] == "iter_0000012"
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release")
    with pytest.raises(CheckpointError, match="'release' is no iteration"):
        read_tracker(tmp_path)
    with pytest.raises(ValueError, match="iteration=-1"):
        checkpoint_folder(tmp_path, -1)
