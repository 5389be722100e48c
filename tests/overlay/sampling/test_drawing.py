# SPDX-License-Identifier: Apache-2.0
"""Drawing: with a perfect velocity the picture of the prompt comes back, whatever the batch."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from mxflux.data import DataError
from mxflux.data.encoders.blocks import BlockTransform
from mxflux.data.encoders.codec import BlockCodec
from mxflux.data.encoders.words import HashedWords
from mxflux.data.shards import DESCRIPTION, META
from mxflux.flux.architecture import FLUX_TINY
from mxflux.flux.patchify import pack_latents
from mxflux.sampling.cli import _context, _parser, _request, main
from mxflux.sampling.context import (
    Context,
    Encoders,
    context_of_run,
    context_without_run,
    find_recipe,
)
from mxflux.sampling.draw import Request, draw
from mxflux.sampling.pictures import GAP, grid, write_png
from mxflux.training.cfg_dropout import CLIP_FILE, FOLDER, T5_FILE, EmptyEncodings

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from torch import Tensor

WORDS = HashedWords(4, 32, 32)
CODEC = BlockCodec(BlockTransform(16, "gray"))
PROMPTS = ("a", "b", "c")


def target(pooled: Tensor) -> Tensor:
    """Latents that the oracle draws for a prompt."""
    generator = torch.Generator().manual_seed(int(pooled.sum().item() * 1000) % 1000)
    return torch.randn(16, 4, 4, generator=generator)


class Oracle:
    """v = (x - x0)/sigma: the exact velocity of the flow to one point, so any steps arrive."""

    config = SimpleNamespace(in_channels=64, guidance_embed=False)
    img_embed = SimpleNamespace(weight=torch.zeros(1))

    def __call__(self, img: Tensor, txt: Tensor, y: Tensor, sigma: Tensor, *_: Any) -> Tensor:
        points = pack_latents(torch.stack([target(row) for row in y])).transpose(0, 1)
        return (img - points) / sigma[None, :, None]


def context(**changes: Any) -> Context:
    prompt, pooled = WORDS.encode("")
    empty = EmptyEncodings(prompt[None], pooled[None])
    return Context(WORDS, CODEC, empty, 32, (), None, **changes)


def request(**changes: Any) -> Request:
    return Request(**{"prompts": PROMPTS, "size": 32, "steps": 5, **changes})


def pictures(**changes: Any) -> Tensor:
    return draw(Oracle(), context(), request(**changes), torch.device("cpu"))  # type: ignore[arg-type]


def test_the_picture_of_each_prompt_is_drawn() -> None:
    found = pictures(count=2)
    expected = CODEC.decode(torch.stack([target(WORDS.encode(p)[1]) for p in PROMPTS * 2]))
    torch.testing.assert_close(found, expected.clamp(-1, 1), rtol=0, atol=1e-4)


def test_neither_batch_nor_number_of_pictures_changes_one() -> None:
    class Still(Oracle):
        def __call__(self, img: Tensor, *_: Any) -> Tensor:
            return torch.zeros_like(img)

    def drawn(**changes: Any) -> Tensor:
        return draw(Still(), context(), request(**changes), torch.device("cpu"))  # type: ignore[arg-type]

    assert torch.equal(drawn(batch=1), drawn(batch=3))
    assert torch.equal(drawn(count=3)[:3], drawn())
    assert torch.equal(drawn(seed=1)[:2], drawn()[1:])
    assert not torch.equal(drawn()[0], drawn()[1])


def test_a_run_on_mean_and_logvar_undoes_scale_and_shift() -> None:
    latents = torch.randn(1, 16, 4, 4) * 0.3
    scaled = context(unscale=(0.5, 0.25))
    torch.testing.assert_close(
        scaled.decode(0.5 * (latents - 0.25)), context().decode(latents), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": ()}, r"nothing to draw: give --prompt TEXT"),
        ({"steps": 0}, r"--steps 0 must be positive"),
        ({"count": 0}, r"--count 0 must be positive"),
        ({"size": 0}, r"--size 0 must be a positive multiple of 16"),
        ({"size": 40}, r"--size 40 must be a positive multiple of 16"),
        ({"guidance": 3.5}, r"--guidance 3.5: this model has no guidance embedding"),
    ],
)
def test_requests_that_the_model_cannot_serve(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        pictures(**changes)


# -- pictures ---------------------------------------------------------------------------------


def test_grid_places_every_picture_and_png_keeps_its_levels(tmp_path: Path) -> None:
    drawn = torch.linspace(-1, 1, 5)[:, None, None, None].expand(5, 3, 8, 6)
    sheet = grid(drawn, 3)
    assert tuple(sheet.shape) == (3, 2 * (8 + GAP) + GAP, 3 * (6 + GAP) + GAP)
    path = tmp_path / "out" / "sheet.png"
    write_png(sheet, path)
    with Image.open(path) as image:
        assert image.size == (sheet.shape[2], sheet.shape[1])
        levels = [image.getpixel((GAP + 1 + i * (6 + GAP), GAP + 1)) for i in range(3)]
    assert levels == [(0, 0, 0), (64, 64, 64), (128, 128, 128)]
    assert [entry.name for entry in path.parent.iterdir()] == ["sheet.png"]


def test_a_picture_that_is_not_finite_or_no_png_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    path.write_bytes(b"old")
    with pytest.raises(DataError, match=r"values that are not finite; nothing is written"):
        write_png(torch.full((3, 4, 4), float("nan")), path)
    assert path.read_bytes() == b"old"
    with pytest.raises(DataError, match=r"x.jpg: pictures are written as .png"):
        write_png(torch.zeros(3, 4, 4), tmp_path / "x.jpg")


# -- what belongs to a checkpoint -------------------------------------------------------------

RECIPE = """\
device: cpu
launch: {nproc_per_node: 1}
model: {preset: flux_tiny, cfg_dropout_prob: 0.1}
data: {kind: KIND, image_size: 64, text_length: 4}
schedule: {train_iters: 1, micro_batch_size: 1, global_batch_size: 1}
optimizer: {lr: 1.0e-3}
"""


def test_the_recipe_above_a_checkpoint_tells_its_encoders(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "iter_0000010"
    checkpoint.mkdir(parents=True)
    assert find_recipe(checkpoint) is None
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("KIND", "digits"))
    assert find_recipe(checkpoint) == recipe
    found = context_of_run(recipe, FLUX_TINY, Encoders())
    assert found.prompts == tuple(f"digit {digit}" for digit in range(10))
    assert (found.cfg_scale, found.image_size, found.unscale) == (3.0, 64, None)
    assert found.decode(torch.zeros(1, 16, 8, 8)).shape == (1, 3, 64, 64)
    recipe.write_text(RECIPE.replace("KIND", "mock").replace("0.1", "0.0"))
    with pytest.raises(DataError, match=r"random numbers \(data.kind: mock\): .*--vae"):
        context_of_run(recipe, FLUX_TINY, Encoders())


def folder_of(recipe: Path, started: Path | None) -> Path:
    """A run's recipe.yaml with a relative data.path; run.json says where it started."""
    recipe.parent.mkdir(parents=True)
    scale = "vae_latent_mode: resample, vae_scale: 0.5, vae_shift: 0.25"
    recipe.write_text(RECIPE.replace("KIND", f"energon, path: data, {scale}"))
    if started is not None:
        (recipe.parent / "run.json").write_text(json.dumps({"cwd": str(started)}))
    return recipe


def data_set(folder: Path) -> None:
    """What is read of a data set for drawing: who made it, and the empty prompt."""
    (folder / FOLDER).mkdir(parents=True)
    np.save(folder / FOLDER / T5_FILE, np.zeros((1, 4, FLUX_TINY.context_dim), np.float32))
    np.save(folder / FOLDER / CLIP_FILE, np.zeros((1, FLUX_TINY.vec_in_dim), np.float32))
    (folder / META).mkdir()
    encoder = {"name": "builtin", "channels": 16, "colour": "rgb"}
    (folder / META / DESCRIPTION).write_text(json.dumps({"format": 1, "encoder": encoder}))


def test_relative_data_are_found_where_the_run_started(tmp_path: Path) -> None:
    data_set(tmp_path / "project" / "data")
    recorded = folder_of(tmp_path / "far" / "run" / "recipe.yaml", tmp_path / "project")
    found = context_of_run(recorded, FLUX_TINY, Encoders())
    assert found.codec.describe() == BlockCodec(BlockTransform(16, "rgb")).describe()
    assert found.unscale == (0.5, 0.25)
    within = folder_of(tmp_path / "project" / "runs" / "run" / "recipe.yaml", None)
    assert context_of_run(within, FLUX_TINY, Encoders()).unscale == (0.5, 0.25)
    lost = folder_of(tmp_path / "lost" / "run" / "recipe.yaml", tmp_path / "gone")
    with pytest.raises(DataError, match=rf"data.path: data is in none .*: {tmp_path / 'gone'}$"):
        context_of_run(lost, FLUX_TINY, Encoders())


def test_a_vae_that_the_data_set_names_unscales_its_latents_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vae:
        """Like AutoencoderCodec, undoes scale and shift in decode."""

        def decode(self, latents: Tensor) -> Tensor:
            return (latents / 0.5 + 0.25)[:, :3]

    data_set(tmp_path / "data")
    recipe = folder_of(tmp_path / "runs" / "run" / "recipe.yaml", None)
    monkeypatch.setattr("mxflux.sampling.context.codec_from", lambda *_, **__: Vae())
    found = context_of_run(recipe, FLUX_TINY, Encoders())
    assert found.unscale is None
    assert found.decode(torch.full((1, 16, 2, 2), 0.25)).unique().tolist() == [0.75]


def test_weights_without_a_recipe_need_every_encoder() -> None:
    with pytest.raises(DataError, match=r"no recipe.yaml lies above this .* give --vae, --t5"):
        context_without_run(FLUX_TINY, Encoders(clip="x"), text_length=8, image_size=64)


def test_guidance_is_refused_for_a_run_that_never_saw_the_empty_prompt() -> None:
    def asked(trained: bool | None, *flags: str) -> float:
        options = _parser().parse_args(["x", "-o", "a.png", "--prompt=a", *flags])
        return _request(options, replace(context(), cfg_trained=trained)).cfg_scale

    assert [asked(trained) for trained in (True, False, None)] == [3.0, 1.0, 1.0]
    assert asked(None, "--cfg=2") == asked(True, "--cfg=2") == 2.0
    with pytest.raises(DataError, match=r"--cfg 2: the run had model.cfg_dropout_prob: 0"):
        asked(False, "--cfg=2")
    with pytest.raises(DataError, match=r"--label: this model was not trained on digits"):
        asked(True, "--label=3")


def test_a_path_or_a_name_that_cannot_be_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere"), "-o", str(tmp_path / "a.png")]) == 1
    assert "nowhere does not exist" in capsys.readouterr().err
    assert main([str(tmp_path), "-o", str(tmp_path / "a.gif")]) == 2
    assert "a.gif: pictures are written as .png" in capsys.readouterr().err
    assert main([str(tmp_path), "-o", str(tmp_path / "a.png"), "--columns=0"]) == 2
    assert "--columns 0 must be positive" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_options_that_a_recipe_decides_and_zeros_are_not_ignored(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("KIND", "digits"))

    def options(*flags: str) -> Namespace:
        return _parser().parse_args(["x", "-o", "a.png", "--prompt=a", *flags])

    assert _request(options(), context()).size == 32
    assert _request(options("--size=0"), context()).size == 0  # which draw refuses
    checkpoint: Any = SimpleNamespace(path=tmp_path, architecture=FLUX_TINY)
    given = f"--recipe={recipe}"
    assert _context(options(given), checkpoint).image_size == 64
    with pytest.raises(DataError, match=r"--text-length 8: data.text_length of .*yaml"):
        _context(options(given, "--text-length=8"), checkpoint)
