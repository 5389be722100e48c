# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of a Flux model in closed form, and the peak of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxflux.flux.architecture import FluxArchitecture

PEAK_BF16_TFLOPS = {"h200": 989.4, "mi355x": 2516.6}
"""Dense BF16 peak of the matrix units in TFLOP/s by device (the vendors' data sheets)."""


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
