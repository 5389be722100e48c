# SPDX-License-Identifier: Apache-2.0
"""Every random generator of a rank, collected and restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

from .errors import CheckpointError


def collect() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's generators, the GPU's, and Megatron's tracker."""
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "tracker": {name: _tensor(state) for name, state in _tracker_states().items()},
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore(states: dict[str, Any]) -> None:
    """Continue every generator from a collected state.

    Raises CheckpointError when this run has other generators: a GPU's on a CPU or the reverse,
    or other names in Megatron's tracker.
    """
    problems = _differences(states)
    if problems:
        raise CheckpointError("the saved generators are not those of this run:", problems)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    _restore_tracker(states["tracker"])


def _differences(states: dict[str, Any]) -> list[str]:
    problems = []
    if ("cuda" in states) != torch.cuda.is_available():
        with_gpu, without = "with a GPU's generator", "without one"
        saved, here = (with_gpu, without) if "cuda" in states else (without, with_gpu)
        problems.append(f"saved {saved}, this run is {here}")
    saved_names, names = sorted(states["tracker"]), sorted(_tracker_states())
    if saved_names != names:
        problems.append(f"Megatron's tracker: saved {saved_names}, this run has {names}")
    return problems


def _tracker_states() -> dict[str, Any]:
    states: dict[str, Any] = get_cuda_rng_tracker().get_states()
    return states


def _tensor(state: Any) -> torch.Tensor:
    """A copy of a state that a tracker keeps as a tensor, or as a generator (with CUDA graphs)."""
    tensor: torch.Tensor = state.get_state() if isinstance(state, torch.Generator) else state
    return tensor.clone()


def _restore_tracker(states: dict[str, torch.Tensor]) -> None:
    current = _tracker_states()
    for name, state in states.items():
        if isinstance(current[name], torch.Generator):
            # A captured graph refers to the generator itself.
            current[name].set_state(state)
        else:
            current[name] = state
    get_cuda_rng_tracker().set_states(current)
