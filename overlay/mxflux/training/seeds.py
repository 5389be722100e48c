# SPDX-License-Identifier: Apache-2.0
"""Start values of every generator before the model is built, the same on all ranks."""

from __future__ import annotations

import random

import numpy as np
import torch
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed


def seed_everything(seed: int, *, te_rng_tracker: bool) -> None:
    """Python, NumPy, torch and Megatron's model-parallel tracker, as Megatron's own start-up does.

    All data-parallel ranks build the same weights from these; the forward step then gives each
    rank its own noise (seed + 100 * rank). Without pipeline stages no rank offset applies here.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    model_parallel_cuda_manual_seed(seed, te_rng_tracker)
