# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of a Flux model in closed form, and the peak of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxflux.flux.architecture import FluxArchitecture

PEAK_TFLOPS: dict[str, dict[str, float]] = {
    "h200": {"bf16": 989.4, "fp8": 1978.9},
    "mi355x": {"bf16": 2516.6, "fp8": 5033.2, "fp6": 10066.3, "fp4": 10066.3},
}
"""Dense matrix peak in TFLOP/s by device and precision (vendors' data sheets)."""


def forward_flops(arch: FluxArchitecture, image_tokens: int, text_tokens: int) -> int:
    """Operations of one sample's forward pass: matrix products only, 2 for a multiply-add."""
    h, tokens = arch.hidden_size, image_tokens + text_tokens
    # A token passes qkv (H x 3H), proj (H x H), fc1 (H x F), fc2 (F x H) in every block; then
    # attention's two products, over all pairs of tokens.
    block = 2 * tokens * h * (4 * h + 2 * arch.ffn_hidden_size) + 4 * tokens**2 * h
    modulation = 2 * h * h * (12 * arch.num_joint_layers + 3 * arch.num_single_layers)
    embedders = [arch.model_channels, arch.vec_in_dim]
    embedders += [arch.model_channels] if arch.guidance_embed else []
    vectors = sum(2 * h * (width + h) for width in embedders)
    streams = 2 * h * (arch.in_channels * image_tokens + arch.context_dim * text_tokens)
    head = 2 * h * (2 * h + arch.patch_size**2 * arch.out_channels * image_tokens)
    return arch.num_layers * block + modulation + vectors + streams + head


def training_flops(arch: FluxArchitecture, image_tokens: int, text_tokens: int) -> int:
    """Operations of one sample's training step: forward, and twice that backward.

    Recomputed activations do not count: this is what the model needs, not what a run spends.
    """
    return 3 * forward_flops(arch, image_tokens, text_tokens)


def peak_tflops(device: str, precision: str, gemm_backend: str | None) -> float | None:
    """Peak of the matrix units that serve ``precision`` (bf16, fp8, fp6, fp4); None if unknown.

    An emulated format multiplies in BF16, so BF16's peak is its measure.
    """
    peaks = PEAK_TFLOPS.get(device, {})
    return peaks.get("bf16" if gemm_backend == "emulated" else precision)
