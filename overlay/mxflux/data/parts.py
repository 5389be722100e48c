# SPDX-License-Identifier: Apache-2.0
"""The stored parts of a sample: their names, their bytes, and the tensors in them.

Two encodings, named by ``subflavors.encoding`` of an Energon data set:

* ``preencoded``: tensors written with torch.save (latents.pth or mean.pth and logvar.pth,
  prompt_embeds.pth, pooled_prompt_embeds.pth);
* ``preencoded_numpy``: MLPerf's form, .npy files of uint16 that are the bits of bf16 (t5.bytes,
  clip.bytes, mean.bytes, logvar.bytes), or those bits alone without a .npy header.

Either may have a json part with ``timestep`` (0..7, validation) and ``caption``.
"""

from __future__ import annotations

import io
import json
import pickle
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mxflux.training.timestep_sampling import EVALUATION_LEVELS

from .errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .settings import SampleShape

PREENCODED, PREENCODED_NUMPY = "preencoded", "preencoded_numpy"
PART_NAMES = {
    PREENCODED: {
        "latents": "latents.pth",
        "mean": "mean.pth",
        "logvar": "logvar.pth",
        "prompt_embeds": "prompt_embeds.pth",
        "pooled_prompt_embeds": "pooled_prompt_embeds.pth",
    },
    PREENCODED_NUMPY: {
        "mean": "mean.bytes",
        "logvar": "logvar.bytes",
        "prompt_embeds": "t5.bytes",
        "pooled_prompt_embeds": "clip.bytes",
    },
}
"""Encoding -> key of a batch -> part of a sample."""
SIDECAR = "json"
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_NPY_MAGIC = b"\x93NUMPY"


def part_names(encoding: str, latent_keys: tuple[str, ...]) -> dict[str, str]:
    """Batch key -> part name of what a run reads.

    Raises DataError for an unknown encoding, and when it does not store such latents.
    """
    if encoding not in PART_NAMES:
        raise DataError(
            f"subflavors.encoding is {encoding!r}: expected one of {', '.join(PART_NAMES)}"
        )
    names = PART_NAMES[encoding]
    keys = (*latent_keys, "prompt_embeds", "pooled_prompt_embeds")
    if missing := [key for key in keys if key not in names]:
        raise DataError(f"encoding {encoding} stores no {', '.join(missing)}")
    return {key: names[key] for key in keys}


def decode_part(name: str, data: bytes, shape: tuple[int, ...] | None) -> Tensor:
    """The tensor of a part; ``shape`` is needed for bits without a header.

    No code in the file is run. Raises DataError saying what is wrong with the bytes.
    """
    if name.endswith(".pth"):
        return _from_torch(data)
    return _from_bits(data, shape)


def encode_part(name: str, tensor: Tensor) -> bytes:
    """Bytes of a part, the same for the same values: the inverse of :func:`decode_part`."""
    buffer = io.BytesIO()
    if name.endswith(".pth"):
        torch.save(tensor.contiguous().clone(), buffer)
    else:
        bits = tensor.to(torch.bfloat16).contiguous().view(torch.uint16)
        np.save(buffer, bits.numpy(), allow_pickle=False)
    return buffer.getvalue()


def read_sidecar(data: bytes | None) -> dict[str, Any]:
    """The json part: ``timestep`` is checked. Raises DataError saying what is wrong with it."""
    if data is None:
        return {}
    try:
        values = json.loads(data)
    except ValueError as error:
        raise DataError(f"is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise DataError(f"is {values!r}, not a JSON object")
    if "timestep" in values:
        step = values["timestep"]
        if isinstance(step, bool) or not isinstance(step, int):
            raise DataError(f"timestep is {step!r}, not an integer")
        if not 0 <= step < EVALUATION_LEVELS:
            raise DataError(f"timestep is {step}, outside 0..{EVALUATION_LEVELS - 1}")
    return values


def tensor_problem(key: str, tensor: Tensor, shape: SampleShape) -> str | None:
    """What is wrong with the dtype or shape of a sample's tensor, naming the setting; or None."""
    if tensor.dtype not in FLOATS:
        return f"has dtype {tensor.dtype}, expected bfloat16, float16 or float32"
    expected, found = shape.of(key), tuple(tensor.shape)
    if found == expected:
        return None
    told = f"has shape {list(found)}, expected {list(expected)}"
    return f"{told}: {_reason(key, found, expected)}" if len(found) == len(expected) else told


def _reason(key: str, found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Which setting a shape of the right rank goes against."""
    if key == "prompt_embeds" and found[0] != expected[0]:
        return f"T5 length {found[0]}, data.text_length is {expected[0]}"
    if key == "prompt_embeds":
        return f"model.context_dim is {expected[1]}"
    if key == "pooled_prompt_embeds":
        return f"model.vec_in_dim is {expected[0]}"
    if found[1] % 2 or found[2] % 2:
        return "latent sizes must be even, tokens are 2x2 patches"
    if found[0] != expected[0]:
        return f"model.in_channels/4 is {expected[0]}"
    return f"data.image_size is {expected[1] * 8}"


def squeezed(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Without a leading axis of 1, which some encoders keep from their batch."""
    return tensor[0] if tensor.dim() == len(shape) + 1 and tensor.shape[0] == 1 else tensor


def missing_parts(sample: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
    """Which of the wanted parts a sample lacks, and what it has; or None."""
    missing = [name for name in names.values() if name not in sample]
    if not missing:
        return None
    present = sorted(key for key in sample if not key.startswith("__"))
    return f"lacks {', '.join(missing)}; it has {', '.join(present) or 'nothing'}"


def _from_torch(data: bytes) -> Tensor:
    try:
        value = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, OSError, KeyError, pickle.UnpicklingError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot be read as a tensor ({first})") from error
    if not isinstance(value, Tensor):
        raise DataError(f"holds a {type(value).__name__}, not a tensor")
    return value


def _from_bits(data: bytes, shape: tuple[int, ...] | None) -> Tensor:
    if data.startswith(_NPY_MAGIC):
        try:
            array = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise DataError(f"is no whole .npy file ({error})") from error
        if array.dtype != np.uint16:
            raise DataError(f"has dtype {array.dtype}, expected uint16 (bits of bfloat16)")
        return torch.from_numpy(array.copy()).view(torch.bfloat16)
    if shape is None or len(data) != 2 * prod(shape):
        raise DataError(
            f"has no .npy header and {len(data)} bytes, which are no bfloat16 of shape "
            f"{list(shape) if shape else '?'}"
        )
    array = np.frombuffer(data, dtype="<u2").reshape(shape)
    return torch.from_numpy(array.astype(np.uint16)).view(torch.bfloat16)
