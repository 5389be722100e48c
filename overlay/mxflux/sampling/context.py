# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint was trained on: the run's recipe beside it, its encoders, its decoder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxflux.data import DataError, empty_encodings, settings_of
from mxflux.data.digits import caption
from mxflux.data.encoders.codec import BlockCodec, codec_from, text_encoder_from
from mxflux.data.shards import read_description
from mxflux.recipe.loading import load
from mxflux.training.cfg_dropout import EmptyEncodings

if TYPE_CHECKING:
    from torch import Tensor

    from mxflux.data.encoders.codec import PictureCodec, TextEncoder
    from mxflux.flux.architecture import FluxArchitecture
    from mxflux.recipe.schema import Recipe

RECIPE, RECORD = "recipe.yaml", "run.json"
DEFAULT_CFG = 3.0
DIGITS = {"encoder": {"name": "builtin", "colour": "gray"}}


@dataclass(frozen=True)
class Encoders:
    """Folders given on the command line, which go before what the data set says."""

    vae: str | None = None
    clip: str | None = None
    t5: str | None = None


@dataclass(frozen=True)
class Context:
    """Everything around the model that turns prompts into pictures."""

    text: TextEncoder
    codec: PictureCodec
    empty: EmptyEncodings
    image_size: int
    prompts: tuple[str, ...]
    """What to draw when nothing is asked for."""
    cfg_trained: bool | None
    """Whether the empty prompt was trained, as guidance needs; None: not known."""
    unscale: tuple[float, float] | None = None
    """(scale, shift) of a run that drew its latents from mean and logvar; None: already latents."""

    @property
    def cfg_scale(self) -> float:
        """Guidance where nothing is asked for: none unless it was trained for."""
        return DEFAULT_CFG if self.cfg_trained else 1.0

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures [B,3,H,W] in [-1,1] of the model's latents."""
        if self.unscale is not None:
            latents = latents / self.unscale[0] + self.unscale[1]
        return self.codec.decode(latents).clamp(-1, 1)


def find_recipe(checkpoint: Path) -> Path | None:
    """recipe.yaml of the run that a checkpoint lies in (RUN/checkpoints/iter_NNNNNNN), or None."""
    for folder in list(checkpoint.resolve().parents)[:3]:
        if (folder / RECIPE).is_file():
            return folder / RECIPE
    return None


def context_of_run(path: Path, architecture: FluxArchitecture, encoders: Encoders) -> Context:
    """The context of a run's recipe.

    Raises RecipeError for a broken recipe, DataError when its data tell no decoder.
    """
    recipe = _from_the_runs_place(load(path).recipe, path.resolve().parent)
    data = settings_of(recipe, architecture)
    description = _description(recipe, architecture)
    sizes = (data.text_length, data.context_dim, data.vec_in_dim)
    codec = codec_from(description, vae=encoders.vae)
    return Context(
        text=text_encoder_from(description, sizes, clip=encoders.clip, t5=encoders.t5),
        codec=codec,
        empty=empty_encodings(data, recipe.data.empty_encodings_path),
        image_size=data.image_size,
        cfg_trained=recipe.model.cfg_dropout_prob > 0,
        prompts=tuple(caption(digit) for digit in range(10)) if data.kind == "digits" else (),
        unscale=_unscale(recipe, codec),
    )


def context_without_run(
    architecture: FluxArchitecture, encoders: Encoders, *, text_length: int, image_size: int
) -> Context:
    """The context of weights that come without a recipe: every encoder must be given.

    Raises DataError naming what is missing.
    """
    missing = [name for name in ("vae", "clip", "t5") if getattr(encoders, name) is None]
    if missing:
        raise DataError(
            "no recipe.yaml lies above this checkpoint, so its encoders are not known: give "
            + ", ".join(f"--{name}" for name in missing)
        )
    sizes = (text_length, architecture.context_dim, architecture.vec_in_dim)
    text = text_encoder_from({}, sizes, clip=encoders.clip, t5=encoders.t5)
    prompt, pooled = text.encode("")
    return Context(
        text=text,
        codec=codec_from({}, vae=encoders.vae),
        empty=EmptyEncodings(prompt[None], pooled[None]),
        image_size=image_size,
        cfg_trained=None,
        prompts=(),
    )


def encode_prompts(context: Context, prompts: list[str]) -> tuple[Tensor, Tensor]:
    """Prompt embeddings [B,S,context_dim] and pooled [B,vec_in_dim], fp32."""
    pairs = [context.text.encode(prompt) for prompt in prompts]
    return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])


def _description(recipe: Recipe, architecture: FluxArchitecture) -> dict[str, Any]:
    if recipe.data.kind == "digits":
        return {"encoder": {**DIGITS["encoder"], "channels": architecture.in_channels // 4}}
    if recipe.data.kind == "mock":
        return {"encoder": {"name": "random numbers (data.kind: mock)"}}
    return read_description(Path(recipe.data.path or ""))


def _from_the_runs_place(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with its folders as the run saw them: relative ones are from where it started.

    Raises DataError naming every place tried when a folder is in none of them.
    """
    places = _places(run)
    found = {
        key: str(_first(f"data.{key}", Path(value), places))
        for key in ("path", "empty_encodings_path")
        if (value := getattr(recipe.data, key)) is not None and not Path(value).is_absolute()
    }
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=found)})


def _places(run: Path) -> list[Path]:
    """Where relative paths may be from: the run's recorded cwd alone, else above the run, here."""
    record = run / RECORD
    if record.is_file():
        try:
            cwd = json.loads(record.read_text(encoding="utf-8")).get("cwd")
        except (ValueError, AttributeError) as error:
            raise DataError(f"{record}: not a JSON object ({error})") from error
        if cwd:
            return [Path(cwd)]
    return [*run.parents, Path.cwd()]


def _first(key: str, relative: Path, places: list[Path]) -> Path:
    for place in places:
        if (place / relative).exists():
            return place / relative
    raise DataError(
        f"{key}: {relative} is in none of the places that the run may have started from: "
        + ", ".join(map(str, places))
    )


def _unscale(recipe: Recipe, codec: PictureCodec) -> tuple[float, float] | None:
    """An AutoencoderCodec undoes scale and shift itself; the built-in codec has none of its own."""
    if recipe.data.vae_latent_mode != "resample" or not isinstance(codec, BlockCodec):
        return None
    scale, shift = recipe.data.vae_scale, recipe.data.vae_shift
    return None if scale is None or shift is None else (scale, shift)
