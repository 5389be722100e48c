# SPDX-License-Identifier: Apache-2.0
"""A tiny training run on gloo ranks: Megatron's DDP and distributed optimizer, Flux's own step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flux_tiny as tiny
import torch
from flux_ranks import start
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer

from mxflux.checkpoint.distributed import load_checkpoint, save_checkpoint
from mxflux.checkpoint.model_state import load_model_state
from mxflux.flux.model import FluxModel
from mxflux.training.batch import LatentMode
from mxflux.training.forward_step import FluxForwardStep, StepSettings, reduce_loss
from mxflux.training.optimizer_state import allocate_adam_state, load_optimizer_state
from mxflux.training.random_state import StepCounter

SETTINGS = StepSettings(LatentMode("presampled"), seed=11, per_step_rng_reseed=True)


class Run:
    """Model, optimizer and step of one rank."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.config = tiny.config(timestep_sampling_strategy="direct_uniform")
        self.model = FluxModel(self.config)
        ddp = DistributedDataParallelConfig(
            use_distributed_optimizer=True, overlap_grad_reduce=True, bucket_size=20_000
        )
        self.ddp = DistributedDataParallel(self.config, ddp, self.model)
        options = OptimizerConfig(
            optimizer="adam", lr=2e-3, weight_decay=0.0, use_distributed_optimizer=True
        )
        self.optimizer: MegatronOptimizer = get_megatron_optimizer(options, [self.ddp])
        self.step = FluxForwardStep(self.config, SETTINGS, device="cpu")

    def train(self, steps: int) -> list[float]:
        """Losses of some steps; every rank sees the same batch, so that DP 1 and DP 2 agree."""
        return [self._train_step() for _ in range(steps)]

    def _train_step(self) -> float:
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        out = self.step.run(batch(), self.ddp)
        loss, _ = reduce_loss(
            out.prediction, latents=out.latents, noise=out.noise, is_validation=False
        )
        loss.backward()
        self.ddp.finish_grad_sync()
        assert self.optimizer.step()[0]
        return loss.item()

    def state(self, *, is_loading: bool = False) -> dict[str, Any]:
        """Sharded state of model and optimizer."""
        metadata = {
            "distrib_optim_sharding_type": "dp_reshardable",
            "chained_optim_avoid_prefix": True,
            "singleton_local_shards": False,
            "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
        }
        model = self.model.sharded_state_dict(metadata=metadata)
        optimizer = self.optimizer.sharded_state_dict(
            model, is_loading=is_loading, metadata=metadata
        )
        return {"model": model, "optimizer": optimizer}

    def resume(self, folder: Path, iteration: int) -> None:
        """Load a checkpoint of ``iteration`` micro-steps."""
        allocate_adam_state(self.optimizer)
        loaded = load_checkpoint(folder, self.state(is_loading=True))
        load_model_state(self.model, loaded["model"])
        load_optimizer_state(self.optimizer, loaded["optimizer"])
        self.step.counter = StepCounter.resume(iteration, 1)


def batch() -> dict[str, torch.Tensor]:
    """Latents that are one of two patterns, told apart by the prompt alone."""
    generator = torch.Generator().manual_seed(8)
    arch = tiny.ARCHITECTURE
    patterns = torch.randn(2, arch.in_channels // 4, 4, 8, generator=generator)
    prompts = torch.randn(2, 5, arch.context_dim, generator=generator)
    pooled = torch.randn(2, arch.vec_in_dim, generator=generator)
    which = torch.arange(16) % 2
    return {
        "latents": patterns[which],
        "prompt_embeds": prompts[which],
        "pooled_prompt_embeds": pooled[which],
    }


def train_and_save(root: str, before: int, after: int) -> dict[str, Any]:
    """Train, save, train on; then resume in a fresh run and train the same steps again."""
    start()
    run = Run()
    losses = run.train(before)
    save_checkpoint(Path(root), before, run.state(), run.config.architecture)
    out = {"losses": losses, "continued": run.train(after)}
    return {**out, **resume_and_train(root, before, after)}


def resume_and_train(root: str, before: int, after: int) -> dict[str, Any]:
    """Resume from the checkpoint on this many ranks."""
    if not parallel_state.model_parallel_is_initialized():
        start()
    run = Run()
    run.resume(Path(root) / f"iter_{before:07d}", before)
    losses = run.train(after)
    final = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    return {"resumed": losses, "final": final}
