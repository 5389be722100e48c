# SPDX-License-Identifier: Apache-2.0
"""One sample's parts held against the others and against what a run will ask for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .energon_dataset import TRAIN
from .errors import DataError
from .parts import (
    PART_NAMES,
    SIDECAR,
    decode_part,
    missing_parts,
    part_names,
    read_sidecar,
    squeezed,
    tensor_problem,
)
from .settings import LATENT_FACTOR, SampleShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_LATENTS = {"presampled": ("latents",), "resample": ("mean", "logvar")}


@dataclass(frozen=True)
class Wanted:
    """What a run will ask for; None: as the first good sample has it."""

    vae_latent_mode: str | None = None
    image_size: int | None = None
    channels: int | None = None
    text_length: int | None = None
    context_dim: int | None = None
    vec_in_dim: int | None = None


@dataclass
class Findings:
    """What a data set holds, and a line for everything wrong with it: shard, sample, part."""

    path: str
    encoding: str = ""
    vae_latent_mode: str = ""
    shape: SampleShape | None = None
    samples: dict[str, int] = field(default_factory=dict)
    shards: int = 0
    dtypes: set[str] = field(default_factory=set)
    timesteps: dict[str, Counter[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check_sample(
    where: str, split: str, parts: dict[str, bytes], wanted: Wanted, found: Findings
) -> None:
    """Add a line to ``found.problems`` for everything wrong with a sample called ``where``."""
    if not found.vae_latent_mode:
        found.vae_latent_mode = wanted.vae_latent_mode or _mode_of(parts, found.encoding)
    names = part_names(found.encoding, _LATENTS[found.vae_latent_mode])
    if problem := missing_parts(parts, names):
        found.problems.append(f"{where} {problem}")
    tensors = {}
    for key, name in names.items():
        if name in parts:
            tensor = _decoded(where, key, name, parts[name], found)
            if tensor is not None:
                tensors[key] = tensor
    if found.shape is None and len(tensors) == len(names):
        found.shape = _shape_of(tensors, names, wanted)
    for key, tensor in tensors.items():
        _check_tensor(f"{where}: {names[key]}", key, tensor, found)
    _check_sidecar(where, split, parts.get(SIDECAR), found)


def _decoded(where: str, key: str, name: str, data: bytes, found: Findings) -> Tensor | None:
    shape = None if found.shape is None else found.shape.of(key)
    try:
        return decode_part(name, data, shape)
    except DataError as error:
        found.problems.append(f"{where}: {name} {error}")
        return None


def _check_tensor(where: str, key: str, tensor: Tensor, found: Findings) -> None:
    found.dtypes.add(str(tensor.dtype).removeprefix("torch."))
    if found.shape is not None:
        tensor = squeezed(tensor, found.shape.of(key))
        if problem := tensor_problem(key, tensor, found.shape):
            found.problems.append(f"{where} {problem}")
    if tensor.is_floating_point():
        bad = int((~torch.isfinite(tensor.float())).sum())
        if bad:
            found.problems.append(f"{where} has {bad} value(s) that are NaN or infinite")


def _check_sidecar(where: str, split: str, data: bytes | None, found: Findings) -> None:
    try:
        values: Mapping[str, Any] = read_sidecar(data)
    except DataError as error:
        found.problems.append(f"{where}: {SIDECAR} {error}")
        return
    if "timestep" not in values:
        return
    found.timesteps.setdefault(split, Counter())[int(values["timestep"])] += 1
    if split == TRAIN:
        found.problems.append(f"{where}: {SIDECAR} has a timestep, which training refuses")


def _mode_of(parts: Mapping[str, bytes], encoding: str) -> str:
    return "presampled" if PART_NAMES[encoding].get("latents") in parts else "resample"


def _shape_of(
    tensors: Mapping[str, Tensor], names: Mapping[str, str], wanted: Wanted
) -> SampleShape | None:
    """Sizes that all samples must have: those wanted, else those of this sample."""
    latents = tensors[next(iter(names))]
    prompt, pooled = tensors["prompt_embeds"], tensors["pooled_prompt_embeds"]
    if latents.dim() < 3 or prompt.dim() < 2 or pooled.dim() < 1:
        return None
    channels, height, width = latents.shape[-3:]
    side = None if wanted.image_size is None else wanted.image_size // LATENT_FACTOR
    return SampleShape(
        channels=wanted.channels or channels,
        height=side or height,
        width=side or width,
        text_length=wanted.text_length or prompt.shape[-2],
        context_dim=wanted.context_dim or prompt.shape[-1],
        vec_in_dim=wanted.vec_in_dim or pooled.shape[-1],
    )
