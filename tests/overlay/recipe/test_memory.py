# SPDX-License-Identifier: Apache-2.0
"""Closed forms of memory: parameters, gradients, optimizer state, packed weights, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxflux.flux.architecture import FLUX_12B, FLUX_535M
from mxflux.recipe.memory import rank_memory

if TYPE_CHECKING:
    from conftest import Load

P12, P535 = 11_891_178_560, 535_318_336
GPU = ("device=h200", "launch.nproc_per_node=8", "schedule.global_batch_size=512")
BF16_GRADIENTS = "precision.grad_reduce_in_bf16=true"


def test_parameter_counts_are_those_of_the_papers() -> None:
    assert (FLUX_12B.num_parameters, FLUX_535M.num_parameters) == (P12, P535)
    assert FLUX_12B.num_quantized_linears == 304


@pytest.mark.parametrize(
    ("overrides", "parameters", "gradients", "optimizer"),
    [
        ((), 2, 4, 12),
        ((BF16_GRADIENTS,), 2, 2, 12),
        (("precision.params_dtype=float32",), 4, 4, 8),
        (
            (BF16_GRADIENTS, "optimizer.use_precision_aware_optimizer=true"),
            2, 2, 2 + 4 + 4,
        ),
        (
            (
                "optimizer.use_precision_aware_optimizer=true",
                "optimizer.exp_avg_dtype=bf16",
                "optimizer.exp_avg_sq_dtype=bf16",
            ),
            2, 4, 2 + 2 + 2,
        ),
    ],
)  # fmt: skip
def test_bytes_of_a_parameter(
    load_text: Load, overrides: tuple[str, ...], parameters: int, gradients: int, optimizer: int
) -> None:
    recipe = load_text(overrides=[*GPU, "model.preset=flux_12b", *overrides]).recipe
    for ranks in (1, 8):
        memory = rank_memory(recipe, ranks)
        assert memory.parameters == parameters * P12
        assert memory.gradients == gradients * P12
        assert memory.optimizer == optimizer * P12 // ranks
    assert memory.packed_weights == 0


def test_without_the_distributed_optimizer_every_rank_has_all(load_text: Load) -> None:
    overrides = [*GPU, "model.preset=flux_535m", "parallel.use_distributed_optimizer=false"]
    assert rank_memory(load_text(overrides=overrides).recipe, 8).optimizer == 12 * P535


def test_packed_weights_are_those_of_the_blocks_linears(load_text: Load) -> None:
    h = 3072
    joint, single = 2 * (3 + 1 + 4 + 4) * h * h, (3 + 1 + 4 + 4) * h * h
    mxfp4 = [*GPU, "model.preset=flux_535m", "precision.fp4=e2m1", "precision.fp4_recipe=mxfp4"]
    recipe = load_text(overrides=[*mxfp4, "precision.gemm_backend=emulated"]).recipe
    assert rank_memory(recipe, 1).packed_weights == (joint + single) * 17 // 32


def test_activations_grow_with_the_micro_batch_and_shrink_with_recomputation(
    load_text: Load,
) -> None:
    base = [*GPU, "model.preset=flux_12b", "schedule.micro_batch_size=4"]
    plain = rank_memory(load_text(overrides=base).recipe, 8).activations
    double = [*base, "schedule.micro_batch_size=8"]
    assert rank_memory(load_text(overrides=double).recipe, 8).activations == 2 * plain
    full = [
        *base,
        "model.recompute_granularity=full",
        "model.recompute_method=uniform",
        "model.recompute_num_layers=1",
    ]
    assert rank_memory(load_text(overrides=full).recipe, 8).activations < plain / 10
    block = [*full[:-2], "model.recompute_method=block", "model.recompute_num_layers=57"]
    every = rank_memory(load_text(overrides=full).recipe, 8).activations
    assert rank_memory(load_text(overrides=block).recipe, 8).activations == every
    some = [*block[:-1], "model.recompute_num_layers=10"]
    assert every < rank_memory(load_text(overrides=some).recipe, 8).activations < plain


def test_fused_paths_keep_less(load_text: Load) -> None:
    base = [*GPU, "model.preset=flux_12b"]
    plain = rank_memory(load_text(overrides=base).recipe, 8).activations
    for key in ("fused_qk_norm_rope", "fused_ln_modulate"):
        fused = load_text(overrides=[*base, f"model.{key}=on"]).recipe
        assert rank_memory(fused, 8).activations < plain


def test_unfused_attention_keeps_its_weights(load_text: Load) -> None:
    """fp32 softmax and its bf16 copy, less the fused kernel's log-sum-exp, in both blocks."""
    base = ["data.image_size=64", "data.text_length=8"]
    flash = rank_memory(load_text(overrides=base).recipe, 1).activations
    changed = load_text(overrides=[*base, "model.attention_backend=unfused"]).recipe
    tokens, heads = 16 + 8, 4
    each = 4 * tokens * heads * (6 * tokens - 4)
    assert rank_memory(changed, 1).activations == flash + 2 * each


def test_a_size_must_be_positive(load_text: Load) -> None:
    with pytest.raises(ValueError, match="data_parallel_size=0 must be positive"):
        rank_memory(load_text().recipe, 0)
