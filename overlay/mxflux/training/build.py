# SPDX-License-Identifier: Apache-2.0
"""Model, DDP, optimizer and learning-rate schedule of a run, from Megatron-core's own parts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.tensor_parallel.layers import (
    set_defaults_if_not_set_tensor_model_parallel_attributes,
)

from mxflux.flux.model import FluxModel

from .configs import ddp_config, flux_config, optimizer_config, schedule_of
from .learning_rate import AlignedWarmupScheduler
from .mx_precision import start_stochastic_rounding, use_mx_precision
from .seeds import seed_everything

if TYPE_CHECKING:
    from megatron.core.distributed import DistributedDataParallelConfig

    from mxflux.flux.config import FluxConfig
    from mxflux.recipe.schema import Recipe

    from .process import Process


@dataclass
class Built:
    """What a rank trains with."""

    config: FluxConfig
    model: FluxModel
    ddp: DistributedDataParallel
    optimizer: MegatronOptimizer
    optimizer_config: OptimizerConfig
    scheduler: OptimizerParamScheduler


def initialize_parallel_state(recipe: Recipe) -> None:
    """Megatron's process groups, without the gloo twins that older checkpoints needed."""
    parallel = recipe.parallel
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=parallel.tensor_model_parallel_size,
        pipeline_model_parallel_size=parallel.pipeline_model_parallel_size,
        context_parallel_size=parallel.context_parallel_size,
        create_gloo_process_groups=False,
        distributed_timeout_minutes=parallel.distributed_timeout_minutes,
    )


def build(recipe: Recipe, process: Process) -> Built:
    """Everything that a step needs, with fresh weights; the same on all data-parallel ranks.

    The order is Megatron's: seeds, model, device, DDP, optimizer, schedule. Parameters are created
    in the parameter dtype and the model casts its own inputs, so there is no Float16Module.
    """
    seed = recipe.schedule.seed
    seed_everything(seed, te_rng_tracker=recipe.schedule.te_rng_tracker)
    if recipe.schedule.deterministic_mode:
        torch.use_deterministic_algorithms(True)
    use_mx_precision(recipe)
    config = flux_config(recipe)
    model = FluxModel(config).to(process.device)
    model.model_type = ModelType.encoder_or_decoder  # Megatron's schedule asks for it
    for parameter in model.parameters():
        set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    start_stochastic_rounding(model, seed, parallel_state.get_data_parallel_rank(), 0)
    ddp = wrap(model, ddp_config(recipe))
    settings = optimizer_config(recipe)
    optimizer = get_megatron_optimizer(settings, [ddp], use_gloo_process_groups=False)
    _connect(config, ddp, optimizer)
    scheduler = build_scheduler(recipe, optimizer)
    return Built(config, model, ddp, optimizer, settings, scheduler)


def wrap(model: FluxModel, settings: DistributedDataParallelConfig) -> DistributedDataParallel:
    """Megatron's DDP around a model, with its parameter layout where the release takes one."""
    if not settings.overlap_grad_reduce:
        settings.bucket_size = None  # nothing to overlap: one bucket
    elif settings.bucket_size is None:
        ranks = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
        settings.bucket_size = max(40_000_000, 1_000_000 * ranks)
    return DistributedDataParallel(
        model.config, settings, model, **_parameter_layout(model, settings)
    )


def build_scheduler(recipe: Recipe, optimizer: MegatronOptimizer) -> OptimizerParamScheduler:
    """The learning-rate schedule, at its start."""
    arguments = schedule_of(recipe)
    if recipe.optimizer.nemo_aligned_lr_warmup:
        batch = recipe.schedule.global_batch_size
        return AlignedWarmupScheduler(optimizer, global_batch_size=batch, **arguments)
    return OptimizerParamScheduler(optimizer, **arguments)


def _connect(
    config: FluxConfig, ddp: DistributedDataParallel, optimizer: MegatronOptimizer
) -> None:
    """What Megatron's schedules look up in the config, as its own training loop sets it."""
    if ddp.ddp_config.overlap_grad_reduce:
        config.no_sync_func = ddp.no_sync
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss


def _parameter_layout(model: FluxModel, settings: DistributedDataParallelConfig) -> dict[str, Any]:
    """The ``full_param_layout`` that DDP takes since 0.18; older buffers lay themselves out."""
    compute = getattr(DistributedOptimizer, "compute_full_param_layout", None)
    if not settings.use_distributed_optimizer or compute is None:
        return {}
    ranks = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    further: dict[str, Any] = {}
    if "expert_data_parallel_world_size" in inspect.signature(compute).parameters:
        further["expert_data_parallel_world_size"] = (
            parallel_state.get_expert_data_parallel_world_size()
        )
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    layout = compute(trained, settings.bucket_size, ranks, settings, **further)
    return {"full_param_layout": layout}
