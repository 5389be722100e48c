# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.sampling.cli` on a real FluxModel: the same picture again, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from mxflux.checkpoint.safetensors_file import TensorInfo, write_safetensors
from mxflux.checkpoint.sources import NATIVE_FORMAT, architecture_to_json
from mxflux.flux.architecture import FLUX_TINY

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = """\
device: cpu
launch: {nproc_per_node: 1}
model: {preset: flux_tiny, cfg_dropout_prob: 0.1}
data: {kind: digits, image_size: 32, text_length: 4}
schedule: {train_iters: 1, micro_batch_size: 1, global_batch_size: 1}
optimizer: {lr: 1.0e-3}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a checkpoint of random weights in native layout."""
    folder = tmp_path_factory.mktemp("sampled") / "run"
    weights = folder / "checkpoints" / "weights"
    weights.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    config = {"format": NATIVE_FORMAT, "architecture": architecture_to_json(FLUX_TINY)}
    (weights / "config.json").write_text(json.dumps(config))
    own = torch.Generator().manual_seed(1)
    state = {
        name: torch.randn(shape, generator=own) * 0.05
        for name, shape in FLUX_TINY.parameter_shapes().items()
    }
    infos = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in state.items()}
    write_safetensors(weights / "model.safetensors", infos, state.items())
    return folder


def sample(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mxflux.sampling.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_checkpoint_draws_the_same_picture_again(run: Path, tmp_path: Path) -> None:
    weights = run / "checkpoints" / "weights"
    first = sample(weights, "-o", tmp_path / "a.png", "--steps=2")
    assert first.returncode == 0, first.stderr
    assert "10 picture(s) of" in first.stdout
    assert "(fp32, unquantized), 2 steps, cfg 3, seed 0" in first.stdout
    again = sample(weights, "-o", tmp_path / "b.png", "--steps=2", "--batch=3")
    assert again.returncode == 0, again.stderr
    from PIL import Image

    with Image.open(tmp_path / "a.png") as a, Image.open(tmp_path / "b.png") as b:
        assert a.size == (10 * 36 + 4, 40)
        differences = [abs(x - y) for x, y in zip(a.tobytes(), b.tobytes(), strict=True)]
    assert max(differences) <= 1  # another batch size may round a level otherwise


def test_refusals_come_before_the_drawing(run: Path, tmp_path: Path) -> None:
    weights = run / "checkpoints" / "weights"
    out = tmp_path / "a.png"
    asked = sample(weights, "-o", out, "--guidance=3")
    assert (asked.returncode, out.exists()) == (2, False)
    assert "--guidance 3.0: this model has no guidance embedding" in asked.stderr
    assert "Traceback" not in asked.stderr
