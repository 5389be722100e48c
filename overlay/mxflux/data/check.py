# SPDX-License-Identifier: Apache-2.0
"""Every sample of a pre-encoded data set read and judged, without Energon's own reader."""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .energon_dataset import TRAIN, VALIDATION, dataset_path, split_counts
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
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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


def check_dataset(path: str, wanted: Wanted) -> Findings:
    """Read everything. Raises DataError when it is no data set at all."""
    folder = dataset_path(path)
    found = Findings(path)
    found.encoding = stored_encoding(folder)
    seen: dict[str, str] = {}
    for split in (TRAIN, VALIDATION):
        try:
            counts = split_counts(folder, split)
        except DataError as error:
            if split == TRAIN:
                found.problems.append(str(error))
            continue
        for shard, count in counts.items():
            _check_shard(folder, split, shard, count, wanted, found, seen)
    _check_timesteps(found)
    return found


def stored_encoding(folder: Path) -> str:
    """subflavors.encoding of dataset.yaml. Raises DataError when it is missing or unknown."""
    import yaml

    path = folder / ".nv-meta" / "dataset.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        encoding = values["subflavors"]["encoding"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: no subflavors.encoding ({error})") from error
    if encoding not in PART_NAMES:
        raise DataError(
            f"{path}: subflavors.encoding is {encoding!r}, expected one of {', '.join(PART_NAMES)}"
        )
    return str(encoding)


def _check_shard(
    folder: Path,
    split: str,
    shard: str,
    count: int,
    wanted: Wanted,
    found: Findings,
    seen: dict[str, str],
) -> None:
    found.shards += 1
    number = 0
    try:
        for key, parts in _samples_of(folder / shard, shard, found.problems):
            number += 1
            if key in seen:
                found.problems.append(f"{shard}: sample {key} is in {seen[key]} already")
            seen[key] = shard
            where = f"{shard}: sample {key}"
            _check_sample(where, split, parts, wanted, found)
    except FileNotFoundError:
        found.problems.append(f"{shard}: the file is missing")
    except (tarfile.TarError, OSError, EOFError) as error:
        found.problems.append(f"{shard}: truncated or damaged after {number} sample(s): {error}")
    found.samples[split] = found.samples.get(split, 0) + number
    if number != count:
        found.problems.append(
            f"{shard}: {number} sample(s), .nv-meta/.info.json says {count} "
            "(run energon prepare again)"
        )


def _samples_of(
    path: Path, shard: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Neighbouring members with the same name up to the first dot are a sample."""
    current: str | None = None
    parts: dict[str, bytes] = {}
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if not member.isreg():
                continue
            file = tar.extractfile(member)
            data = b"" if file is None else file.read()
            if len(data) != member.size:
                raise tarfile.ReadError(f"{member.name} ends after {len(data)} bytes")
            folder, _, name = member.name.rpartition("/")
            stem, _, part = name.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if key != current:
                if current is not None:
                    yield current, parts
                current, parts = key, {}
            if part in parts:
                problems.append(f"{shard}: sample {key} has {part} twice")
            parts[part] = data
    if current is not None:
        yield current, parts


def _check_sample(
    where: str, split: str, parts: dict[str, bytes], wanted: Wanted, found: Findings
) -> None:
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


def _check_timesteps(found: Findings) -> None:
    levels = found.timesteps.get(VALIDATION)
    total = found.samples.get(VALIDATION, 0)
    if levels and sum(levels.values()) != total:
        found.problems.append(
            f"split {VALIDATION}: {sum(levels.values())} of {total} samples have a timestep; "
            "all of them must, or none"
        )


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
