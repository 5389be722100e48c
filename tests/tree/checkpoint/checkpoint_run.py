# SPDX-License-Identifier: Apache-2.0
"""A tiny training run with everything that a checkpoint has to hold."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flux_tiny as tiny
import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.tensor_parallel.random import (
    get_cuda_rng_tracker,
    model_parallel_cuda_manual_seed,
)

from mxflux.checkpoint.training import (
    Loaded,
    Progress,
    TrainingParts,
    load_training_checkpoint,
    save_training_checkpoint,
)
from mxflux.flux.model import FluxModel
from mxflux.training.batch import LatentMode
from mxflux.training.forward_step import FluxForwardStep, StepSettings, reduce_loss
from mxflux.training.random_state import StepCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

RECIPE = "5" * 64
BATCH = 8


def start(tensor_parallel: int = 1) -> None:
    """Megatron's groups and generators, anew."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor_parallel)
    model_parallel_cuda_manual_seed(123, force_reset_rng=True)


@dataclass
class Batches:
    """An endless loader: batch number n is drawn from seed n, the same on every rank."""

    position: int = 0

    def next(self) -> dict[str, torch.Tensor]:
        """The next batch."""
        generator = torch.Generator().manual_seed(self.position)
        self.position += 1
        arch = tiny.ARCHITECTURE
        return {
            "latents": torch.randn(BATCH, arch.in_channels // 4, 4, 8, generator=generator),
            "prompt_embeds": torch.randn(BATCH, 5, arch.context_dim, generator=generator),
            "pooled_prompt_embeds": torch.randn(BATCH, arch.vec_in_dim, generator=generator),
        }

    def state_dict(self) -> dict[str, int]:
        """Where it is."""
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue there."""
        self.position = state_dict["position"]


class SharedBatches(Batches):
    """One that can continue on any number of ranks, because all were at the same place."""

    def load_resharded(self, states: Sequence[dict[str, int]]) -> None:
        """Continue where all ranks were."""
        (self.position,) = {state["position"] for state in states}


class Run:
    """Model, optimizer, schedule, loader and generators of one rank."""

    def __init__(
        self,
        *,
        reseed: bool = True,
        tensor_parallel: int = 1,
        loader: type[Batches] = SharedBatches,
        bucket_size: int = 20_000,
        max_lr: float = 2e-3,
        adam_beta2: float = 0.999,
        chained: bool = False,
    ) -> None:
        """``chained``: Megatron gives some parameters, as if of experts, a second optimizer."""
        torch.manual_seed(3)
        self.config = tiny.config(
            timestep_sampling_strategy="direct_uniform",
            tensor_model_parallel_size=tensor_parallel,
        )
        self.model = FluxModel(self.config)
        for name, parameter in self.model.named_parameters():
            parameter.allreduce = not (chained and ".layers.3." in name)
        ddp = DistributedDataParallelConfig(
            use_distributed_optimizer=True, overlap_grad_reduce=True, bucket_size=bucket_size
        )
        self.ddp = DistributedDataParallel(self.config, ddp, self.model)
        # Without clipping nothing depends on the order in which a norm is summed up over ranks.
        options = OptimizerConfig(
            optimizer="adam",
            lr=max_lr,
            adam_beta2=adam_beta2,
            min_lr=1e-4,
            use_distributed_optimizer=True,
            clip_grad=0.0,
        )
        self.optimizer: Any = get_megatron_optimizer(options, [self.ddp])
        self.scheduler = OptimizerParamScheduler(
            self.optimizer, init_lr=0.0, max_lr=max_lr, min_lr=1e-4, lr_warmup_steps=2,
            lr_decay_steps=10, lr_decay_style="cosine", start_wd=0.0, end_wd=0.1,
            wd_incr_steps=10, wd_incr_style="linear",
        )  # fmt: skip
        self.reseed = reseed
        self.counter = StepCounter()
        if tensor_parallel == 1:  # what the forward step is for
            settings = StepSettings(LatentMode("presampled"), seed=11, per_step_rng_reseed=reseed)
            self.step = FluxForwardStep(self.config, settings, device="cpu")
            self.step.counter = self.counter
        self.loader = loader()
        self.iteration = 0

    @property
    def parts(self) -> TrainingParts:
        """What is saved."""
        return TrainingParts(self.ddp, self.optimizer, self.scheduler, self.loader, self.counter)

    def train(self, steps: int) -> list[float]:
        """Losses of some steps."""
        return [self._train_step() for _ in range(steps)]

    def _train_step(self) -> float:
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        out = self.step.run(self.loader.next(), self.ddp)
        loss, _ = reduce_loss(
            out.prediction, latents=out.latents, noise=out.noise, is_validation=False
        )
        loss.backward()
        self.ddp.finish_grad_sync()
        assert self.optimizer.step()[0]
        self.scheduler.step(increment=1)
        self.iteration += 1
        return loss.item()

    def save(self, run_dir: str | Path, **options: Any) -> Path:
        """Save what has been trained so far."""
        progress = Progress(self.iteration, self.iteration * BATCH, RECIPE)
        return save_training_checkpoint(Path(run_dir), self.parts, progress, **options)

    def load(self, path: str | Path, **options: Any) -> Loaded:
        """Continue from a checkpoint."""
        loaded = load_training_checkpoint(
            path, self.parts, reseeds_every_step=self.reseed, **options
        )
        if loaded.record is not None and not options.get("model_only"):
            self.iteration = loaded.record.progress.iteration
            if hasattr(self, "step"):
                self.step.started = "random" in loaded.restored
        return loaded

    def weights(self) -> dict[str, Any]:
        """A copy of every parameter, as an array: a tensor's pickle would import Megatron."""
        return {name: p.detach().numpy().copy() for name, p in self.model.named_parameters()}


def draws() -> list[float]:
    """One number from every generator of this process."""
    with get_cuda_rng_tracker().fork(), warnings.catch_warnings():
        tracked = torch.rand(1).item()
    return [random.random(), np.random.rand(), torch.rand(1).item(), tracked]
