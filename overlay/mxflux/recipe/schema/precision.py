# SPDX-License-Identifier: Apache-2.0
"""Section `precision`: the dtype of parameters, and the formats in which linears multiply."""

from __future__ import annotations

from typing import Literal

from .base import Positive, Section


class Precision(Section):
    """Number formats. At most one of fp8, fp4 and fp6 is set; none means params_dtype."""

    params_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Dtype of parameters and activations; the optimizer keeps fp32 copies of bfloat16 ones."""
    grad_reduce_in_bf16: bool = False
    """Keep and reduce gradients in bfloat16 rather than in fp32."""
    disable_bf16_reduced_precision_matmul: bool = False
    """Forbid bf16 GEMMs to accumulate in less than fp32."""

    fp4: Literal["e2m1"] | None = None
    """Element format of FP4 linears."""
    fp4_recipe: Literal["mxfp4"] | None = None
    """Scaling of FP4: mxfp4 has an E8M0 scale for each 32 elements."""
    fp4_use_native_te_autocast: bool = False
    """Run FP4 in TransformerEngine's own autocast, whatever provider is registered."""
    fp6: Literal["e2m3", "e3m2"] | None = None
    """Element format of MXFP6 linears."""
    gemm_backend: Literal["emulated", "triton", "hipblaslt", "aiter"] | None = None
    """What multiplies MX operands; must be named where fp4 or fp6 is set. None steps in for it."""
    mx_backward_precision: (
        Literal["mxfp4", "mxfp6", "mxfp6_e3m2", "mxfp8", "mxfp8_e5m2", "fp8", "bf16"] | None
    ) = None
    """Format of both backward GEMMs; null: that of the forward. fp8 (a scale for each tensor) only
    with transformer_impl local, the mxfp names only with transformer_engine."""
    mx_scale_mode: Literal["floor", "ceil", "even", "rceil"] = "floor"
    """How a block's scale is rounded to a power of two."""
    mx_hadamard: bool = False
    """Rotate the operands by a Hadamard matrix: those of wgrad in MXFP4, all of them in MXFP6."""
    mx_stochastic_rounding: bool = False
    """Round gradients stochastically (MXFP4)."""
    mx_weight_block_2d: bool = False
    """One scale for 32 x 32 weights, so that both directions see the same values (MXFP4)."""

    fp8: Literal["e4m3", "hybrid"] | None = None
    """Element formats of FP8 linears: E4M3 throughout, or E5M2 for gradients."""
    fp8_recipe: Literal["delayed", "tensorwise", "mxfp8", "blockwise"] = "delayed"
    """Scaling of FP8."""
    fp8_margin: int = 0
    """Powers of two kept free above the largest value."""
    fp8_amax_history_len: Positive = 1
    """Steps whose largest values decide a delayed scale."""
    fp8_amax_compute_algo: Literal["most_recent", "max"] = "most_recent"
    """How a delayed scale is taken from that history."""
    fp8_wgrad: bool = True
    """Weight gradients in FP8 too."""
    fp8_dot_product_attention: bool = False
    """Attention in FP8."""
    fp8_multi_head_attention: bool = False
    """Attention with FP8 between its linears."""
    fp8_param_gather: bool = False
    """Keep and gather parameters in FP8."""
    tp_only_amax_red: bool = False
    """Reduce the largest values over tensor-parallel ranks only."""
