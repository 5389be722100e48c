# SPDX-License-Identifier: Apache-2.0
"""Every key that Megatron or a config has arrives there, with a value that is no default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import te_arrival
from megatron.core.transformer.transformer_config import TransformerConfig
from small_recipe import TE, arrives, recipe
from te_arrival import VALUES as WITH_TE

from mxflux.flux.config import FluxConfig
from mxflux.flux.config_rules import ACTED_ON, FILLED_IN, FIXED
from mxflux.recipe.effective.live import PLACES
from mxflux.recipe.keys import all_keys
from mxflux.recipe.megatron_arguments import ARGUMENTS
from mxflux.recipe.values import value_of

MXFP4 = {"precision.fp4": "e2m1", "precision.fp4_recipe": "mxfp4"}
LOCAL_MXFP4 = {**MXFP4, "precision.gemm_backend": "emulated"}
FP8 = {**TE, "precision.fp8": "hybrid"}
FULL = {
    "model.recompute_granularity": "full",
    "model.recompute_method": "uniform",
    "model.recompute_num_layers": 1,
}
EDGES = {
    **FP8,
    "precision.fp8_recipe": "tensorwise",
    "model.num_single_layers": 5,
    "model.first_last_layers_bf16": True,
}
OVERLAP = {"parallel.overlap_grad_reduce": True}
CHAINS = {"device": "h200", **LOCAL_MXFP4}
WARMUP = {"optimizer.lr_warmup_iters": 10}
EVALUATION = {"evaluation.interval": 10, "evaluation.iters": 2}

VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    # key: (a value that is not the default, what it needs around it)
    "model.num_joint_layers": (3, {}),
    "model.num_single_layers": (4, {}),
    "model.hidden_size": (256, {"model.axes_dim": [16, 24, 24]}),
    "model.num_attention_heads": (8, {"model.axes_dim": [4, 6, 6]}),
    "model.ffn_hidden_size": (384, {}),
    "model.in_channels": (16, {}),
    "model.out_channels": (32, {}),
    "model.patch_size": (2, {}),
    "model.context_dim": (48, {}),
    "model.vec_in_dim": (48, {}),
    "model.model_channels": (32, {}),
    "model.theta": (5000, {}),
    "model.axes_dim": ([4, 14, 14], {}),
    "model.guidance_embed": (True, {}),
    "model.add_qkv_bias": (False, {}),
    "model.single_block_bias": (False, {}),
    "model.guidance_scale": (4.5, {"model.guidance_embed": True}),
    "model.cfg_dropout_prob": (0.25, {}),
    "model.timestep_sampling_strategy": ("mode", {}),
    "model.transformer_impl": ("transformer_engine", {"device": "h200"}),
    "model.attention_backend": ("unfused", {}),
    "model.position_embedding_type": ("none", {}),
    "model.activation_func": ("erf_gelu", {}),
    "model.layernorm_epsilon": (1e-5, {}),
    "model.attention_dropout": (0.25, {}),
    "model.attention_softmax_in_fp32": (False, {}),
    "model.use_cpu_initialization": (False, {}),
    "model.recompute_granularity": ("full", FULL),
    "model.recompute_method": ("block", FULL),
    "model.recompute_num_layers": (2, FULL),
    "model.recompute_modules": (["core_attn"], {"model.recompute_granularity": "selective"}),
    "model.first_last_layers_bf16": (True, EDGES),
    "model.num_layers_at_start_in_bf16": (2, EDGES),
    "model.num_layers_at_end_in_bf16": (2, EDGES),
    "model.fused_qk_norm_rope": ("auto", {}),
    "model.fused_ln_modulate": ("auto", {}),
    "model.fused_gate_residual": ("on", {}),
    "model.fused_qkv_prologue": ("auto", CHAINS),
    "model.fused_mlp": ("auto", CHAINS),
    "model.fused_ln_pack": ("auto", CHAINS),
    "precision.params_dtype": ("float32", {}),
    "precision.grad_reduce_in_bf16": (True, {}),
    "precision.disable_bf16_reduced_precision_matmul": (True, {}),
    "precision.fp4": ("e2m1", LOCAL_MXFP4),
    "precision.fp4_recipe": ("mxfp4", LOCAL_MXFP4),
    "precision.fp6": ("e3m2", {"precision.gemm_backend": "emulated"}),
    "precision.fp8": ("e4m3", TE),
    "precision.fp8_recipe": ("tensorwise", FP8),
    "precision.fp8_margin": (1, FP8),
    "precision.fp8_amax_history_len": (1024, FP8),
    "precision.fp8_amax_compute_algo": ("max", FP8),
    "precision.fp8_wgrad": (False, FP8),
    "precision.fp8_dot_product_attention": (True, FP8),
    "precision.fp8_multi_head_attention": (True, FP8),
    "precision.fp8_param_gather": (True, FP8),
    "precision.tp_only_amax_red": (True, FP8),
    "data.num_workers": (5, {}),
    "schedule.train_iters": (77, {}),
    "schedule.micro_batch_size": (2, {}),
    "schedule.global_batch_size": (16, {}),
    "schedule.seed": (77, {}),
    "schedule.manual_gc": (True, {}),
    "schedule.manual_gc_interval": (7, {"schedule.manual_gc": True}),
    "schedule.manual_gc_eval": (False, {"schedule.manual_gc": True}),
    "schedule.empty_unused_memory_level": (2, {}),
    "schedule.check_for_nan_in_loss_and_grad": (False, {}),
    "schedule.deterministic_mode": (True, {"device": "h200"}),
    "schedule.te_rng_tracker": (True, TE),
    "schedule.exit_interval": (7, {}),
    "schedule.exit_duration_in_mins": (7, {}),
    "optimizer.lr": (3e-3, {}),
    "optimizer.min_lr": (2e-4, {}),
    "optimizer.weight_decay": (0.2, {}),
    "optimizer.adam_beta1": (0.8, {}),
    "optimizer.adam_beta2": (0.9, {}),
    "optimizer.adam_eps": (1e-6, {}),
    "optimizer.clip_grad": (0.5, {}),
    "optimizer.lr_warmup_iters": (7, {}),
    "optimizer.lr_warmup_init": (1e-5, WARMUP),
    "optimizer.lr_decay_iters": (70, {}),
    "optimizer.lr_decay_style": ("cosine", {}),
    "parallel.use_distributed_optimizer": (False, {}),
    "parallel.overlap_grad_reduce": (True, {}),
    "parallel.overlap_param_gather": (True, OVERLAP),
    "parallel.ddp_bucket_size": (1000, OVERLAP),
    "parallel.ddp_average_in_collective": (True, {}),
    "parallel.defer_grad_buffer_zero": (True, {}),
    "parallel.gradient_accumulation_fusion": (True, {"device": "h200"}),
    "parallel.distributed_backend": ("nccl", {"device": "h200"}),
    "parallel.distributed_timeout_minutes": (77, {}),
    "checkpoint.save_interval": (7, {}),
    "checkpoint.async_save": (True, {}),
    "checkpoint.optimizer_format": ("fully_reshardable", {}),
    "checkpoint.load": ("elsewhere", {}),
    "checkpoint.finetune": (True, {"checkpoint.load": "elsewhere"}),
    "checkpoint.no_save_optim": (True, {}),
    "evaluation.interval": (7, EVALUATION),
    "evaluation.micro_batch_size": (2, EVALUATION),
    "evaluation.global_batch_size": (16, EVALUATION),
    "logging.interval": (7, {}),
    "logging.wandb_project": ("project", {}),
    "logging.wandb_entity": ("team", {"logging.wandb_project": "project"}),
}
ONE_VALUE = {
    "model.rotary_interleaved": "Flux rotates adjacent pairs",
    "optimizer.optimizer": "adam",
    "parallel.tensor_model_parallel_size": "1",
    "parallel.pipeline_model_parallel_size": "1",
    "parallel.context_parallel_size": "1",
    "parallel.sequence_parallel": "false",
}


def test_no_key_is_left_out() -> None:
    assert set(VALUES) | set(ONE_VALUE) | set(WITH_TE) == set(ARGUMENTS) | set(PLACES)


@pytest.fixture(autouse=True)
def _leave_determinism_as_it_is() -> Any:
    """Megatron's checks switch torch's deterministic algorithms on."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.upstream("megatron-lm>=0.17", reason="megatron.training ships from there on")
@pytest.mark.parametrize("key", VALUES)
def test_arrival(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the key is ok in every stage, and no other row is disturbed."""
    monkeypatch.setenv("NCCL_ALGO", "Ring")  # what Megatron asks for in its deterministic mode
    value, around = VALUES[key]
    given = recipe({**around, key: value})
    wanted = tuple(value) if isinstance(value, list) else value
    assert value_of(given, key) == wanted != all_keys()[key].default
    assert arrives(given, key)


@pytest.mark.upstream("megatron-lm>=0.17", reason="megatron.training ships from there on")
def test_arrival_of_what_needs_transformer_engine() -> None:
    """In a process of its own: Megatron decides at import whether Transformer Engine exists."""
    assert te_arrival.run() == dict.fromkeys(WITH_TE, True)


INTERNAL = {
    "num_layers": "joint and single blocks together",
    "kv_channels": "hidden_size / num_attention_heads",
    "num_query_groups": "num_attention_heads: Flux has no grouped queries",
    "bf16": "precision.params_dtype",
    "fp16": "there is no fp16 run: Flux needs bf16's range",
    "hidden_dropout": "Flux has none",
    "qk_layernorm": "Flux has it",
    "hetereogenous_dist_checkpoint": "joint and single blocks need it",
    "model_type": "this is the Flux model",
    "perform_initialization": "a run that resumes loads over it, any other needs it",
    "init_method": "xavier, as Flux is specified",
    "output_layer_init_method": "xavier, as Flux is specified",
    "init_method_std": "not used by xavier",
    "embedding_init_method": "derived by Megatron, Flux has no embedding table",
    "embedding_init_method_std": "derived by Megatron, Flux has no embedding table",
    "autocast_dtype": "derived from params_dtype",
    "pipeline_dtype": "no pipeline",
    "deallocate_pipeline_outputs": "no pipeline",
    "distribute_saved_activations": "needs tensor parallelism",
    "timers": "set by a training loop",
    "barrier_with_L1_time": "for Megatron's timers",
    "finalize_model_grads_func": "set by the trainer",
    "grad_scale_func": "set by the trainer",
    "no_sync_func": "set by the trainer",
    "grad_sync_func": "set by the trainer",
    "param_sync_func": "set by the trainer",
    "fp8_quantizer_factory": "a Python path: for fp8_recipe custom, which no recipe offers",
    "fp4_quantizer_factory": "a Python path: for fp4_recipe custom, which no recipe offers",
    "fp8_interval": "deprecated by TransformerEngine, without effect",
    "fp4_param": "refused with mxfp4",
    "disable_parameter_transpose_cache": "for FSDP",
}
"""Fields of FluxConfig that no recipe sets, and why."""


def test_every_field_of_the_config_is_reachable_or_internal() -> None:
    theirs = {field.name for field in fields(TransformerConfig)}
    used = theirs & (ACTED_ON | set(FIXED) | FILLED_IN)
    ours = {field.name for field in fields(FluxConfig)} - theirs
    reachable = {place.attribute for place in PLACES.values() if place.holder == "config"}
    fixed = {"pipeline_model_parallel_size", "context_parallel_size", "sequence_parallel"}
    known = reachable | set(INTERNAL) | fixed
    assert (ours | used) - known == set()
    assert set(INTERNAL) & reachable == set()
