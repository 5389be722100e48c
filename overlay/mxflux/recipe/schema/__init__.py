# SPDX-License-Identifier: Apache-2.0
"""The typed recipe: one module a section, keys named as Megatron names them where it has them."""

from __future__ import annotations

from .base import Section
from .checkpoint import Checkpoint
from .compilation import Compile
from .data import Data
from .evaluation import Evaluation
from .launch import Launch, Slurm
from .logs import Logging, MLPerf, Probes
from .model import Model
from .optimizer import Optimizer
from .parallel import Parallel
from .precision import Precision
from .recipe import SECTIONS, Recipe
from .schedule import Schedule

__all__ = [
    "SECTIONS",
    "Checkpoint",
    "Compile",
    "Data",
    "Evaluation",
    "Launch",
    "Logging",
    "MLPerf",
    "Model",
    "Optimizer",
    "Parallel",
    "Precision",
    "Probes",
    "Recipe",
    "Schedule",
    "Section",
    "Slurm",
]
