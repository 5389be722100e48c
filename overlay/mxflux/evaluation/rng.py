# SPDX-License-Identifier: Apache-2.0
"""Leave every random number generator of the process as it was."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def preserved_rng(device: torch.device | str = "cpu") -> Iterator[None]:
    """Restore Python's, numpy's, torch's (CPU and ``device``) and Megatron's tracked generators.

    Fused attention advances the default generator even without dropout; evaluation and warm-up
    must not shift what training draws next.
    """
    device = torch.device(device)
    saved_python, saved_cpu = random.getstate(), torch.get_rng_state()
    saved_cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    numpy = sys.modules.get("numpy")
    saved_numpy = numpy.random.get_state() if numpy else None
    restore_tracked = _tracked()
    try:
        yield
    finally:
        random.setstate(saved_python)
        torch.set_rng_state(saved_cpu)
        if saved_cuda is not None:
            torch.cuda.set_rng_state(saved_cuda, device)
        if numpy is not None and saved_numpy is not None:
            numpy.random.set_state(saved_numpy)
        restore_tracked()


def _tracked() -> Callable[[], None]:
    """What puts Megatron's tracker of model-parallel generators back, if there is one."""
    module = sys.modules.get("megatron.core.tensor_parallel.random")
    if module is None or not getattr(module, "_CUDA_RNG_STATE_TRACKER_INITIALIZED", False):
        return _nothing
    tracker: Any = module.get_cuda_rng_tracker()
    states = tracker.get_states()
    # For CUDA graphs the tracker holds generators, which are shared, instead of their states.
    inner = {
        name: state.get_state() for name, state in states.items() if hasattr(state, "get_state")
    }

    def restore() -> None:
        for name, state in inner.items():
            states[name].set_state(state)
        tracker.set_states(states)

    return restore


def _nothing() -> None:
    pass
