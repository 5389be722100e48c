# SPDX-License-Identifier: Apache-2.0
"""From the stored parts of a sample to its checked tensors, and from samples to a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .errors import DataError
from .parts import (
    SIDECAR,
    decode_part,
    missing_parts,
    part_names,
    read_sidecar,
    squeezed,
    tensor_problem,
)

if TYPE_CHECKING:
    from .settings import DataSettings

ENERGON_KEYS = ("__key__", "__restore_key__", "__subflavors__", "__sources__")


def cook(sample: dict[str, Any], settings: DataSettings) -> dict[str, Any]:
    """The tensors that a run reads. Raises DataError naming shard, sample and part."""
    where = sample_name(sample)
    encoding = (sample.get("__subflavors__") or {}).get("encoding")
    try:
        names = part_names(str(encoding), settings.latent_keys)
    except DataError as error:
        raise DataError(f"data.path={settings.path}: {error}") from None
    if problem := missing_parts(sample, names):
        raise DataError(f"{where} {problem} (vae_latent_mode={settings.vae_latent_mode!r})")
    cooked = {key: sample[key] for key in ENERGON_KEYS if key in sample}
    for key, name in names.items():
        shape = settings.shape.of(key)
        try:
            tensor = squeezed(decode_part(name, sample[name], shape), shape)
        except DataError as error:
            raise DataError(f"{where}: {name} {error}") from None
        if problem := tensor_problem(key, tensor, settings.shape):
            raise DataError(f"{where}: {name} {problem}")
        cooked[key] = tensor
    try:
        values = read_sidecar(sample.get(SIDECAR))
    except DataError as error:
        raise DataError(f"{where}: {SIDECAR} {error}") from None
    if "timestep" in values:
        cooked["timestep"] = torch.tensor(values["timestep"])
    return cooked


def batch_samples(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack samples; raises DataError when some have a timestep and others do not."""
    keys = [key for key in samples[0] if not key.startswith("__")]
    for sample in samples:
        own = [key for key in sample if not key.startswith("__")]
        if set(own) != set(keys):
            differ = ", ".join(sorted(set(own) ^ set(keys)))
            raise DataError(
                f"samples {samples[0]['__key__']} and {sample['__key__']} of one batch differ: "
                f"only one has {differ}"
            )
    batch: dict[str, Any] = {key: torch.stack([s[key] for s in samples]) for key in keys}
    batch["__key__"] = [sample["__key__"] for sample in samples]
    batch["__restore_key__"] = ()
    return batch


def sample_name(sample: dict[str, Any]) -> str:
    """Shard and key of a sample, for a message."""
    sources = sample.get("__sources__") or ()
    shard = next((str(source.shard_name) for source in sources), "?")
    return f"{shard}: sample {sample.get('__key__')}"
