# SPDX-License-Identifier: Apache-2.0
"""Classifier-free guidance dropout: both text encodings replaced by those of the empty prompt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

T5_FILE = "t5_empty.npy"
CLIP_FILE = "clip_empty.npy"
FOLDER = "empty_encodings"


@dataclass(frozen=True)
class EmptyEncodings:
    """Encodings of the empty prompt: t5 [1,S,context_dim], clip [1,vec_in_dim]."""

    t5: Tensor
    clip: Tensor

    def __post_init__(self) -> None:
        if self.t5.dim() != 3 or self.t5.shape[0] != 1:
            raise ValueError(f"empty T5 encoding must be [1,S,D], got {tuple(self.t5.shape)}")
        if self.clip.dim() != 2 or self.clip.shape[0] != 1:
            raise ValueError(f"empty CLIP encoding must be [1,D], got {tuple(self.clip.shape)}")

    def to(self, device: torch.device | str, dtype: torch.dtype) -> EmptyEncodings:
        """The same on another device and in another dtype."""
        return EmptyEncodings(self.t5.to(device, dtype), self.clip.to(device, dtype))


def drop_prompts(
    prompt: Tensor, pooled: Tensor, empty: EmptyEncodings, probability: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace each sample's encodings with ``probability``; returns prompt, pooled and the mask.

    prompt [B,S,D], pooled [B,D'], mask [B] bool: one draw from the device's default generator
    decides for both. Raises ValueError when the lengths or widths differ.
    """
    for name, given, replacement in (("T5", prompt, empty.t5), ("CLIP", pooled, empty.clip)):
        if given.shape[1:] != replacement.shape[1:]:
            raise ValueError(
                f"empty {name} encoding has shape {tuple(replacement.shape[1:])}, "
                f"the batch has {tuple(given.shape[1:])}"
            )
    mask = torch.rand(prompt.shape[0], device=prompt.device) < probability
    dropped_prompt = torch.where(mask[:, None, None], empty.t5, prompt)
    return dropped_prompt, torch.where(mask[:, None], empty.clip, pooled), mask


def find_empty_encodings(
    explicit: str | Path | None, data_path: str | Path | None
) -> EmptyEncodings:
    """Load t5_empty.npy and clip_empty.npy from the first folder that has both.

    Searched: ``explicit``, then {data_path}/empty_encodings, then its sibling. Raises
    FileNotFoundError naming every folder searched and what it lacks; an explicit folder that
    lacks a file raises at once.
    """
    folders = [Path(explicit)] if explicit is not None else []
    if explicit is None and data_path is not None:
        folders = [Path(data_path) / FOLDER, Path(data_path).parent / FOLDER]
    lacking = []
    for folder in folders:
        missing = [name for name in (T5_FILE, CLIP_FILE) if not (folder / name).is_file()]
        if not missing:
            return _load(folder)
        lacking.append(f"{folder} lacks {' and '.join(missing)}")
    raise FileNotFoundError(
        "cfg_dropout_prob > 0 needs the encodings of the empty prompt: "
        + ("; ".join(lacking) or "neither empty_encodings_path nor data_path is set")
    )


def _load(folder: Path) -> EmptyEncodings:
    import numpy as np

    arrays: Sequence[Tensor] = [
        torch.from_numpy(np.load(folder / name)) for name in (T5_FILE, CLIP_FILE)
    ]
    return EmptyEncodings(*arrays)
