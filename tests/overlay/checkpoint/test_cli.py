# SPDX-License-Identifier: Apache-2.0
"""The `ckpt` commands as a user meets them: output, exit status, and what is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from native_folder import TINY, native_state, write_native

from mxflux.checkpoint.cli import main
from mxflux.checkpoint.convert import convert
from mxflux.checkpoint.manifest import MANIFEST_NAME
from mxflux.checkpoint.native_view import NativeView
from mxflux.checkpoint.retention import publish_latest
from mxflux.checkpoint.sources import open_checkpoint
from mxflux.checkpoint.tracker import write_tracker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory whose latest checkpoint holds weights."""
    write_native(tmp_path / "native", TINY, native_state(TINY))
    run = tmp_path / "run"
    convert(tmp_path / "native", run / "checkpoints" / "iter_0000007", to="megatron")
    write_tracker(run / "checkpoints", 7)
    publish_latest(run, 7)
    return run


def test_every_form_of_a_path_is_verified(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = run_dir / "checkpoints"
    for path in (run_dir, run_dir / "latest", checkpoints, checkpoints / "iter_0000007"):
        assert main(["verify", str(path)]) == 0
        assert "iter_0000007: ok, 4 files, 101 tensors" in capsys.readouterr().out


def test_verify_names_file_and_tensor(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run_dir / "latest" / "__0_0.distcp"
    changed = bytearray(data.read_bytes())
    place = changed.index(bytes(native_state(TINY)["proj_out.weight"].view(torch.uint8).numpy()))
    changed[place + 10] ^= 1
    data.write_bytes(changed)
    assert main(["verify", str(run_dir)]) == 1
    expected = "file __0_0.distcp: contents changed (SHA-256 differs), in tensor proj_out.weight\n"
    assert expected in capsys.readouterr().err


def test_inspect(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run_dir)]) == 0
    table = capsys.readouterr().out
    assert "2 joint + 3 single blocks, hidden 16, 2 heads, guidance" in table
    assert "weights only" in table
    assert main(["inspect", "--json", str(run_dir / "latest")]) == 0
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert values["parameters"] == TINY.num_parameters
    assert values["weights"]["bytes_by_dtype"] == {"BF16": 2 * TINY.num_parameters}
    assert (values["layout"], values["training"], values["manifest"]) == ("megatron", None, True)


def test_there_and_back_is_equal(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hf, back = str(run_dir / "out" / "hf"), str(run_dir / "out" / "back")
    assert main(["convert", str(run_dir / "latest"), hf, "--to", "diffusers"]) == 0
    assert main(["convert", hf, back, "--to", "megatron"]) == 0
    assert "megatron, 101 tensors, BF16" in capsys.readouterr().out
    for other in (hf, back):
        assert main(["diff", str(run_dir), other]) == 0
        assert "101 tensors equal, 0 different" in capsys.readouterr().out


def test_diff_tells_values_dtypes_and_missing_tensors(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = native_state(TINY)
    state["proj_out.bias"][1] += 0.5
    write_native(tmp_path / "other", TINY, state)
    assert main(["diff", str(run_dir), str(tmp_path / "other"), "--json"]) == 1
    differences = json.loads(capsys.readouterr().out)["differences"]
    expected = {"name": "proj_out.bias", "kind": "values", "elements": 1, "max_abs": 0.5}
    assert differences == [expected]
    assert main(["export", str(run_dir), str(tmp_path / "wide"), "--dtype", "float32"]) == 0
    assert main(["diff", str(run_dir), str(tmp_path / "wide")]) == 1
    assert "dtype BF16 != F32" in capsys.readouterr().out
    smaller = replace(TINY, guidance_embed=False)
    write_native(tmp_path / "smaller", smaller, native_state(smaller))
    assert main(["diff", str(run_dir), str(tmp_path / "smaller"), "--all"]) == 1
    printed = capsys.readouterr().out
    assert "architecture: guidance_embed: True != False" in printed
    assert "missing in B" in printed


def test_export_rounds_only_when_asked(run_dir: Path, tmp_path: Path) -> None:
    state = {name: t.float() * 1.001 for name, t in native_state(TINY).items()}
    write_native(tmp_path / "wide", TINY, state)
    out = tmp_path / "narrow"
    assert main(["export", str(tmp_path / "wide"), str(out), "--dtype", "bfloat16"]) == 0
    view = NativeView(open_checkpoint(out))
    for name, tensor in state.items():
        assert torch.equal(view.load(name), tensor.bfloat16()), name


def test_nan_is_refused_unless_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = native_state(TINY)
    state["img_embed.weight"][0, 0] = float("nan")
    source = str(write_native(tmp_path / "nan", TINY, state))
    assert main(["convert", source, str(tmp_path / "hf"), "--to", "diffusers"]) == 1
    assert "tensor x_embedder.weight: 1 of 64" in (error := capsys.readouterr().err) or (
        "tensor img_embed.weight: 1 of 64" in error
    )
    assert not (tmp_path / "hf").exists()
    allowed = ["convert", source, str(tmp_path / "hf"), "--to", "diffusers", "--allow-nan"]
    assert main(allowed) == 0
    assert main(["diff", source, str(tmp_path / "hf")]) == 0


def test_values_too_large_for_a_dtype_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = native_state(TINY)
    state["img_embed.weight"][0, 0] = 1e6
    source = str(write_native(tmp_path / "large", TINY, state))
    assert main(["export", source, str(tmp_path / "half"), "--dtype", "float16"]) == 1
    assert "tensor img_embed.weight: 1 of 64 values are too large" in capsys.readouterr().err


def test_a_damaged_source_is_not_converted(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_dir / "latest" / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:-3000])
    assert main(["convert", str(run_dir), str(tmp_path / "hf"), "--to", "diffusers"]) == 1
    assert "file __0_0.distcp: truncated" in capsys.readouterr().err
    forced = ["convert", str(run_dir), str(tmp_path / "hf"), "--to", "diffusers", "--no-verify"]
    assert main(forced) == 1  # torch's CheckpointException is no Exception, and is handled
    assert "not readable" in capsys.readouterr().err
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["verify", "{tmp}/none"], 1, "none does not exist"),
        (["inspect", "{tmp}"], 1, "neither a file nor a folder with config.json"),
        (["convert", "{run}", "{run}", "--to", "bfl"], 2, "a BFL checkpoint is one file|exists"),
        (["export", "{run}", "{tmp}/native"], 2, "native exists"),
        (["verify", "{run}/dangling"], 1, "points to iter_0000009, which does not exist"),
    ],
)
def test_errors_have_no_traceback(
    run_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    (run_dir / "dangling").symlink_to("iter_0000009")
    line = [argument.format(tmp=tmp_path, run=run_dir) for argument in arguments]
    assert main(line) == status
    error = capsys.readouterr().err
    assert error.startswith("mxtree ckpt: error: ")
    assert any(part in error for part in message.split("|"))


def test_a_folder_of_checkpoints_without_a_tracker_asks(run_dir: Path) -> None:
    (run_dir / "checkpoints" / "latest_checkpointed_iteration.txt").unlink()
    with pytest.raises(ValueError, match="name one of: iter_0000007"):
        convert(run_dir, run_dir / "out", to="diffusers")


def test_megatron_is_not_imported(run_dir: Path, tmp_path: Path) -> None:
    script = """
import sys
sys.modules["megatron"] = sys.modules["transformer_engine"] = None
from mxflux.checkpoint.cli import main
run, hf = sys.argv[1:]
steps = ["verify", run], ["inspect", run], ["convert", run, hf, "--to=diffusers"], ["diff", run, hf]
sys.exit(sum(main(step) for step in steps))
"""
    command = [sys.executable, "-c", script, str(run_dir), str(tmp_path / "hf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hf" / MANIFEST_NAME).is_file()
