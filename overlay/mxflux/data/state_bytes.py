# SPDX-License-Identifier: Apache-2.0
"""Energon's loader state to bytes and back, without running what tampered bytes could name."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

from .errors import DataError

_STATES = {
    ("megatron.energon.savable_loader", "SavableDataLoaderState"),
    ("megatron.energon.savable_loader", "SavableDatasetCheckpoint"),
    ("megatron.energon.savable_loader", "SavableDatasetState"),
    ("megatron.energon.state", "FlexState"),
    ("megatron.energon.rng", "SystemRngState"),
    ("megatron.energon.flavors.webdataset.sample_loader", "SliceState"),
}
_REBUILDERS = (__name__, "_tensor"), (__name__, "_array")


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint32).copy()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Generator states as plain bytes: torch's and numpy's own ways would run code on load."""
        if isinstance(value, torch.Tensor) and value.dtype == torch.uint8:
            return _tensor, (value.numpy().tobytes(),)
        if isinstance(value, np.ndarray) and value.dtype == np.uint32:
            return _array, (value.tobytes(),)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Energon's states and the two rebuilders above; nothing else."""
        if (module, name) in _STATES or (module, name) in _REBUILDERS:
            return super().find_class(module, name)
        raise DataError(f"the data loader state names {module}.{name}, which has no place there")


def dumps(state: Any) -> bytes:
    """The state as bytes."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(state)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """The state; raises DataError when the bytes name anything that is no such state."""
    return _Unpickler(io.BytesIO(data)).load()
