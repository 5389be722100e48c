# SPDX-License-Identifier: Apache-2.0
"""Which random numbers a training or evaluation step draws, and from which generator."""

from __future__ import annotations

from dataclasses import dataclass

import torch

RANK_STRIDE = 100
STEP_STRIDE = 10_000
_MODULUS = 2**63
# Bits in both halves: torch's CPU generator looks at the low 32 of a start value only.
_EVALUATION_BITS = 0x4000_0000_9E37_79B9


def rank_seed(base: int, data_parallel_rank: int) -> int:
    """Start value of a data-parallel rank's generators: base + 100 * rank."""
    return base + RANK_STRIDE * data_parallel_rank


def step_seed(base: int, data_parallel_rank: int, step: int) -> int:
    """Start value of the device generator for a training micro-step.

    ((base + 100*rank) * 10000 + step) mod 2^63. TE's fused attention advances the default
    generator even without dropout; a fresh start each step makes runs comparable.
    """
    return (rank_seed(base, data_parallel_rank) * STEP_STRIDE + step) % _MODULUS


def evaluation_seed(base: int, data_parallel_rank: int, index: int) -> int:
    """Start value of an evaluation micro-step's own generator, apart from every training step."""
    return step_seed(base, data_parallel_rank, index) ^ _EVALUATION_BITS


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that random functions use on ``device`` when none is given."""
    if device.type == "cpu":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


@dataclass
class StepCounter:
    """Counts training micro-steps; evaluation counts apart and starts anew after each one."""

    training: int = 0
    evaluation: int = 0

    @classmethod
    def resume(cls, iteration: int, num_microbatches: int) -> StepCounter:
        """Counter of a run that has completed ``iteration`` iterations."""
        return cls(training=iteration * num_microbatches)

    def next_training(self) -> int:
        """Index of this training micro-step."""
        self.evaluation = 0
        self.training += 1
        return self.training - 1

    def next_evaluation(self) -> int:
        """Index of this micro-step within the current evaluation."""
        self.evaluation += 1
        return self.evaluation - 1

    def start_evaluation(self) -> None:
        """Begin an evaluation that directly follows another one."""
        self.evaluation = 0
