# SPDX-License-Identifier: Apache-2.0
"""Rules of `data`: a source that is named, and latents that can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe

PIXELS_PER_TOKEN = 16
"""The autoencoder shrinks by 8, a token holds 2x2 latents."""


def _path(r: Recipe) -> Iterator[Finding]:
    if r.data.kind == "energon" and not r.data.path:
        message = f"data.path={r.data.path or 'null'} with data.kind=energon"
        hint = "the folder of the data set; `mxtree data synth` makes a small one"
        yield Finding("data.path", message, hint)


def _latents(r: Recipe) -> Iterator[Finding]:
    for key in ("vae_scale", "vae_shift"):
        value, mode = getattr(r.data, key), r.data.vae_latent_mode
        if (value is None) == (mode == "resample"):
            message = f"data.{key}={'null' if value is None else value} with vae_latent_mode={mode}"
            hint = "it is needed there" if mode == "resample" else "it has no effect there"
            yield Finding(f"data.{key}", message, hint)


def _size(r: Recipe) -> Iterator[Finding]:
    if r.data.image_size % PIXELS_PER_TOKEN:
        message = f"data.image_size={r.data.image_size} is no multiple of {PIXELS_PER_TOKEN}"
        yield Finding("data.image_size", message, "a token is 16x16 pixels")


def _dropout(r: Recipe) -> Iterator[Finding]:
    if r.model.cfg_dropout_prob == 0 and r.data.empty_encodings_path:
        message = "data.empty_encodings_path is set with model.cfg_dropout_prob=0"
        yield Finding("data.empty_encodings_path", message, "it has no effect")


RULES = (_path, _latents, _size, _dropout)
