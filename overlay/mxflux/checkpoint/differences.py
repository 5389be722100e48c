# SPDX-License-Identifier: Apache-2.0
"""Two checkpoints compared tensor by tensor, whatever their layouts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from .locate import locate
from .native_view import NativeView
from .safetensors_file import DTYPE_NAMES, TensorInfo, raw_bytes
from .sources import open_checkpoint
from .torch_dist import is_training_state

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from .casting import View
    from .sources import TensorSource


@dataclass(frozen=True)
class TensorDifference:
    """How one tensor differs: in kind ("missing in A", dtype, shape), or in its values."""

    name: str
    kind: str
    elements: int = 0
    """How many elements differ."""
    max_abs: float | None = None
    """The largest absolute difference; None where there are no two values to subtract."""

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """All tensors of two checkpoints."""

    equal: tuple[str, ...]
    differences: tuple[TensorDifference, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "equal": list(self.equal),
            "differences": [difference.to_json() for difference in self.differences],
            "notes": list(self.notes),
        }


def compare(a: Path | str, b: Path | str, *, weights_only: bool = False) -> Comparison:
    """Compare bit by bit: the weights under their native names, then the optimizer's tensors.

    Raises CheckpointError when one is no checkpoint, or not a complete one.
    """
    first, second = open_checkpoint(locate(a)), open_checkpoint(locate(b))
    notes = [
        f"architecture: {line}" for line in first.architecture.differences(second.architecture)
    ]
    views = NativeView(first, allow_nan=True), NativeView(second, allow_nan=True)
    found = _compare(*views)
    if not weights_only:
        states = _TrainingView(first.source), _TrainingView(second.source)
        if all(state.tensors for state in states):
            found += _compare(*states)
        elif any(state.tensors for state in states):
            notes.append("only one of them has an optimizer's state: the weights were compared")
    equal = tuple(difference.name for difference in found if not difference.kind)
    return Comparison(equal, tuple(d for d in found if d.kind), tuple(notes))


class _TrainingView:
    """The optimizer's tensors of a Megatron checkpoint; of other layouts nothing."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        everything = getattr(source, "all_tensors", {})
        self.tensors = {name: t for name, t in everything.items() if is_training_state(name)}

    def load(self, name: str) -> Tensor:
        """The values of one."""
        return self._source.load(name)


def _compare(a: View, b: View) -> list[TensorDifference]:
    return [_difference(name, a, b) for name in dict.fromkeys((*a.tensors, *b.tensors))]


def _difference(name: str, a: View, b: View) -> TensorDifference:
    ours, theirs = a.tensors.get(name), b.tensors.get(name)
    if ours is None or theirs is None:
        return TensorDifference(name, "missing in A" if ours is None else "missing in B")
    if ours.shape != theirs.shape:
        return TensorDifference(name, f"shape {ours.shape} != {theirs.shape}")
    kinds = [] if ours.dtype == theirs.dtype else [_dtypes(ours, theirs)]
    first, second = a.load(name), b.load(name)
    if not kinds and raw_bytes(first) == raw_bytes(second):
        return TensorDifference(name, "")
    elements, max_abs = _values(first.double(), second.double())
    if elements or not kinds:
        kinds.append("values")
    return TensorDifference(name, ", ".join(kinds), elements, max_abs)


def _dtypes(a: TensorInfo, b: TensorInfo) -> str:
    return f"dtype {DTYPE_NAMES[a.dtype]} != {DTYPE_NAMES[b.dtype]}"


def _values(a: Tensor, b: Tensor) -> tuple[int, float]:
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    distance = torch.where(same, 0.0, (a - b).abs())
    return int((~same).sum()), distance.max().item() if a.numel() else 0.0
