# SPDX-License-Identifier: Apache-2.0
"""Flux's own encoders from local folders: AutoencoderKL of diffusers, CLIP and T5 of transformers.

Nothing is downloaded. A folder is one of a diffusers pipeline (vae, text_encoder, text_encoder_2),
with the tokenizer in it or in its sibling (tokenizer, tokenizer_2).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mxflux.data.errors import DataError
from mxflux.data.settings import LATENT_FACTOR

CLIP_LENGTH = 77


class AutoencoderCodec:
    """A VAE with Flux's conventions: latents = (z - shift_factor) * scaling_factor.

    Raises DataError when diffusers is missing, the folder is no AutoencoderKL, or its pictures are
    not 8 times as large as its latents.
    """

    def __init__(self, folder: str, device: str | torch.device = "cpu") -> None:
        diffusers = _library("diffusers", "an AutoencoderKL")
        self.folder = str(_folder(folder, "AutoencoderKL", "config.json").resolve())
        self._device = torch.device(device)
        self._vae = _loaded(diffusers.AutoencoderKL, Path(self.folder), "AutoencoderKL")
        self._vae.to(self._device).eval().requires_grad_(False)
        config = self._vae.config
        self._scale = float(config.scaling_factor)
        self._shift = float(getattr(config, "shift_factor", None) or 0.0)
        factor = 2 ** (len(config.block_out_channels) - 1)
        if factor != LATENT_FACTOR:
            raise DataError(f"{folder}: its latents are 1/{factor} of the side, Flux needs 1/8")

    @torch.no_grad()
    def encode(self, pictures: Tensor, latent_keys: tuple[str, ...]) -> dict[str, Tensor]:
        """The mean as latents (no draw, so that encoding is reproducible), or mean and logvar."""
        posterior = self._vae.encode(pictures.to(self._device)).latent_dist
        if latent_keys == ("latents",):
            return {"latents": ((posterior.mean - self._shift) * self._scale).cpu()}
        return {"mean": posterior.mean.cpu(), "logvar": posterior.logvar.cpu()}

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of scaled and shifted latents."""
        raw = latents.to(self._device, torch.float32) / self._scale + self._shift
        pictures: Tensor = self._vae.decode(raw).sample
        return pictures.float().cpu()

    def describe(self) -> dict[str, Any]:
        """Where it was loaded from, and its numbers."""
        return {
            "name": "diffusers",
            "vae": self.folder,
            "vae_scale": self._scale,
            "vae_shift": self._shift,
        }


class ClipAndT5:
    """CLIP's pooled output (77 tokens) and T5's last hidden state (``text_length`` tokens).

    Both are padded to their full length and see the padding, as Flux.1 was trained.
    Raises DataError when transformers or a folder is missing.
    """

    def __init__(
        self, clip: str, t5: str, text_length: int, device: str | torch.device = "cpu"
    ) -> None:
        transformers = _library("transformers", "CLIP and T5")
        self.clip = str(_folder(clip, "CLIP text model", "config.json").resolve())
        self.t5 = str(_folder(t5, "T5 encoder", "config.json").resolve())
        self.text_length = text_length
        self._device = torch.device(device)
        self._clip = self._model(transformers.CLIPTextModel, self.clip, "CLIP text model")
        self._t5 = self._model(transformers.T5EncoderModel, self.t5, "T5 encoder")
        auto = transformers.AutoTokenizer
        self._clip_tokens = _loaded(auto, _tokenizer(self.clip, "tokenizer"), "tokenizer")
        self._t5_tokens = _loaded(auto, _tokenizer(self.t5, "tokenizer_2"), "tokenizer")

    @torch.no_grad()
    def encode(self, caption: str) -> tuple[Tensor, Tensor]:
        """Prompt embeddings [text_length, width of T5] and pooled [width of CLIP], fp32."""
        clip_ids = self._ids(self._clip_tokens, caption, CLIP_LENGTH)
        t5_ids = self._ids(self._t5_tokens, caption, self.text_length)
        pooled = self._clip(input_ids=clip_ids).pooler_output[0]
        prompt = self._t5(input_ids=t5_ids).last_hidden_state[0]
        return prompt.float().cpu(), pooled.float().cpu()

    def describe(self) -> dict[str, Any]:
        """Where they were loaded from."""
        return {"clip": self.clip, "t5": self.t5, "text_length": self.text_length}

    def _ids(self, tokenizer: Any, caption: str, length: int) -> Tensor:
        tokens = tokenizer(
            caption, padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        ids: Tensor = tokens["input_ids"]
        return ids.to(self._device)

    def _model(self, kind: Any, folder: str, name: str) -> Any:
        model = _loaded(kind, Path(folder), name)
        return model.to(self._device).eval().requires_grad_(False)


def _library(name: str, purpose: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataError(f"{purpose} needs the package {name}: pip install {name}") from error


def _folder(given: str, what: str, file: str) -> Path:
    folder = Path(given)
    if not (folder / file).is_file():
        raise DataError(f"{given}: no {what}, {file} is not in it")
    return folder


def _tokenizer(model: str, sibling: str) -> Path:
    """The model's folder when its tokenizer is in it, or the sibling of a diffusers pipeline."""
    folder = Path(model)
    for place in (folder, folder.parent / sibling):
        if (place / "tokenizer_config.json").is_file() or (place / "tokenizer.json").is_file():
            return place
    raise DataError(f"{model}: no tokenizer there and none in {folder.parent / sibling}")


def _loaded(kind: Any, folder: Path, what: str) -> Any:
    try:
        return kind.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{folder}: cannot be loaded as {what}: {first}") from error
