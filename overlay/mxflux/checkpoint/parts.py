# SPDX-License-Identifier: Apache-2.0
"""What a training run hands over to be saved, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from megatron.core.optimizer import MegatronOptimizer
    from torch import nn

    from mxflux.training.random_state import StepCounter

    from .training_record import TrainingRecord


@runtime_checkable
class Resumable(Protocol):
    """Something with a state: the LR scheduler (the same on every rank), or a data loader."""

    def state_dict(self) -> Any:
        """Its state, picklable."""
        ...

    def load_state_dict(self, state_dict: Any) -> Any:
        """Continue from a state."""
        ...


@runtime_checkable
class ReshardableLoader(Resumable, Protocol):
    """A data loader that can continue under another data-parallel size."""

    def load_resharded(self, states: Sequence[Any]) -> None:
        """Continue from the states of all data-parallel ranks of the saved run, in rank order.

        Raises ValueError with the reason when it cannot.
        """
        ...


@dataclass(frozen=True)
class TrainingParts:
    """The live objects of a run. None: the run has none, and the checkpoint must have none.

    ``model`` is a FluxModel, or what wraps it (DDP, Float16Module). ``loader`` is this
    data-parallel rank's.
    """

    model: nn.Module
    optimizer: MegatronOptimizer | None = None
    scheduler: Resumable | None = None
    loader: Resumable | None = None
    counter: StepCounter | None = None


@dataclass(frozen=True)
class Loaded:
    """What was loaded and from where."""

    path: Path
    record: TrainingRecord | None
    """None: the checkpoint holds weights only."""
    restored: tuple[str, ...]
    """Of the record's ``holds``, what this run continues from."""
    notes: tuple[str, ...] = ()
    """What a reader of the log should know: another recipe, generators that started anew."""
