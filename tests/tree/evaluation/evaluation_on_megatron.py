# SPDX-License-Identifier: Apache-2.0
"""What the tests run on each rank with the real Megatron (see support.ranks)."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import (
    get_cuda_rng_tracker,
    model_parallel_cuda_manual_seed,
)

from mxflux.evaluation.budget import budget_of_args
from mxflux.evaluation.errors import EvaluationError
from mxflux.evaluation.rng import preserved_rng


def budgets() -> dict[str, Any]:
    """A budget of Megatron's arguments before and after its parallel state exists."""
    args = Namespace(micro_batch_size=4, global_batch_size=32, eval_iters=3)
    try:
        budget_of_args(args)
    except EvaluationError as error:
        early = str(error)
    parallel_state.initialize_model_parallel()
    return {"early": early, "budget": budget_of_args(args)}


def generators() -> dict[str, Any]:
    """Numbers drawn from Megatron's tracked generators after a guarded block and without one."""
    parallel_state.initialize_model_parallel()

    def draws(guarded: bool) -> list[float]:
        model_parallel_cuda_manual_seed(7)
        if guarded:
            with preserved_rng():
                _draw(5)
        return _draw(3)

    def unguarded() -> list[float]:
        model_parallel_cuda_manual_seed(7)
        _draw(5)
        return _draw(3)

    return {"guarded": draws(True), "fresh": draws(False), "advanced": unguarded()}


def _draw(count: int) -> list[float]:
    with get_cuda_rng_tracker().fork():
        return torch.rand(count).tolist()
