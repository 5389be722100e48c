# SPDX-License-Identifier: Apache-2.0
"""Rules of `model` and `precision`: each refuses what it is for, and names field and value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rule_settings import FUSED_CHAINS, GPU_MXFP6, MXFP4, MXFP6, TE, Case, check_refused, name_of

if TYPE_CHECKING:
    from conftest import Faults

REFUSED: list[Case] = [
    # model
    ("model.hidden_size=100", "model: axes_dim=(8, 12, 12) sums to 32, not to head_dim=25"),
    ("model.axes_dim=[8, 12, 10]", "model: axes_dim=(8, 12, 10) sums to 30, not to head_dim=32"),
    ("model.num_attention_heads=5", "model: hidden_size=128 is not divisible by num_attention_h"),
    ("model.rotary_interleaved=false", "model.rotary_interleaved=false", "only true"),
    (
        (*TE, "model.apply_rope_fusion=true", "model.position_embedding_type=none"),
        "model.apply_rope_fusion=true with model.position_embedding_type=none: Megatron would",
    ),
    (
        (*TE, "model.apply_rope_fusion=true", "model.fused_qk_norm_rope=auto"),
        "model.fused_qk_norm_rope=auto with model.apply_rope_fusion=true: both claim",
    ),
    ("model.transformer_impl=transformer_engine", "model.transformer_impl=transformer_engine with"),
    ((*TE, "model.attention_backend=local"), "model.attention_backend=local switches all"),
    ("model.attention_backend=fused", "model.attention_backend=fused with model.transformer_impl"),
    ("model.apply_rope_fusion=true", "model.apply_rope_fusion=true with model.transformer_impl=lo"),
    (
        (*MXFP4, "model.first_last_layers_bf16=true", "model.num_layers_at_end_in_bf16=0"),
        "model.first_last_layers_bf16=true with model.transformer_impl=local",
    ),
    (
        (*TE, "precision.fp8=hybrid", "model.first_last_layers_bf16=true"),
        "model.first_last_layers_bf16=true with precision.fp8_recipe=delayed",
    ),
    (
        (*TE, *MXFP4, "model.first_last_layers_bf16=true"),
        "model.first_last_layers_bf16=true keeps 2 of 2 blocks in BF16",
    ),
    (
        (*GPU_MXFP6, "model.fused_qk_norm_rope=on", "model.fused_qkv_prologue=on"),
        "model.fused_qk_norm_rope=on with model.fused_qkv_prologue=on",
    ),
    (
        (*GPU_MXFP6, "model.fused_ln_pack=on", "model.fused_mlp=auto"),
        "model.fused_ln_pack=on without model.fused_qkv_prologue and model.fused_mlp",
    ),
    (
        (*GPU_MXFP6, "model.fused_mlp=on", "model.activation_func=erf_gelu"),
        "model.fused_mlp=on with model.activation_func=erf_gelu",
    ),
    (
        (*GPU_MXFP6, "model.fused_mlp=on", "precision.mx_backward_precision=bf16"),
        "model.fused_mlp=on with precision.mx_backward_precision=bf16",
    ),
    ("model.fused_ln_modulate=on", "model.fused_ln_modulate=on with device=cpu", "auto declines"),
    (
        ("device=h200", *FUSED_CHAINS, "model.fused_ln_pack=auto"),
        "model.fused_ln_pack=auto without MX linears of the local spec",
    ),
    (
        (*TE, *MXFP6, "model.fused_qkv_prologue=on"),
        "model.fused_qkv_prologue=on without the linears of the local spec",
    ),
    (
        ("model.recompute_granularity=selective", "model.recompute_modules=[mlp]"),
        "model.recompute_modules: 'mlp' cannot be recomputed alone",
    ),
    (
        ("model.scheduler_shift=3.0", "model.timestep_sampling_strategy=direct_uniform"),
        "model.scheduler_shift=3.0 with direct_uniform",
    ),
    ("model.recompute_granularity=full", "model.recompute_granularity=full without model.recomp"),
    # precision
    ("precision.fp4=e2m1", "precision.fp4=e2m1 without precision.fp4_recipe", "gemm_backend"),
    ((*MXFP4, "precision.fp6=e2m3"), "precision: fp4=e2m1, fp6=e2m3 exclude each other"),
    (
        (*TE, *MXFP6, "precision.fp8=hybrid"),
        "precision: fp8=hybrid, fp6=e2m3 exclude each other",
    ),
    ("precision.fp6=e2m3", "precision.gemm_backend is not set", "on cpu: emulated"),
    ((*MXFP6, "precision.gemm_backend=aiter"), "precision.gemm_backend=aiter with device=cpu"),
    (
        ("device=mi355x", "precision.fp6=e3m2", "precision.gemm_backend=aiter"),
        "precision.fp6=e3m2 with precision.gemm_backend=aiter",
    ),
    (
        (*MXFP4, "precision.mx_backward_precision=mxfp8"),
        "precision.mx_backward_precision=mxfp8 with transformer_impl=local",
    ),
    (
        (*TE, *MXFP4, "precision.mx_backward_precision=fp8"),
        "precision.mx_backward_precision=fp8 with transformer_impl=transformer_engine",
    ),
    ("precision.fp8=hybrid", "precision.fp8=hybrid, fp8_recipe=delayed with transformer_impl=loc"),
    (
        (*MXFP4, "precision.fp4_use_native_te_autocast=true"),
        "precision.fp4_use_native_te_autocast=true with transformer_impl=local",
    ),
    (
        (*MXFP6, "precision.mx_stochastic_rounding=true"),
        "precision.mx_stochastic_rounding=true without precision.fp4",
    ),
    (
        (*TE, *MXFP4, "precision.mx_hadamard=true", "precision.mx_weight_block_2d=true"),
        "precision.mx_hadamard=true with precision.mx_weight_block_2d=true",
    ),
    (
        (
            *MXFP4,
            "precision.mx_backward_precision=bf16",
            "precision.mx_stochastic_rounding=true",
        ),
        "precision.mx_stochastic_rounding=true with mx_backward_precision=bf16",
    ),
    (
        ("precision.params_dtype=float32", "precision.grad_reduce_in_bf16=true"),
        "precision.grad_reduce_in_bf16=true with precision.params_dtype=float32",
    ),
    (
        (*TE, "precision.fp8=e4m3", "precision.fp8_recipe=mxfp8"),
        "precision.fp8_recipe=mxfp8 with device=h200",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_refused(faults: Faults, case: Case) -> None:
    check_refused(faults, case)
