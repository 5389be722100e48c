# SPDX-License-Identifier: Apache-2.0
"""Section `parallel`: how ranks share parameters, gradients and optimizer state."""

from __future__ import annotations

from typing import Literal

from .base import Positive, Section


class Parallel(Section):
    """Data parallelism; Flux is not split in any other way."""

    tensor_model_parallel_size: Positive = 1
    """Ranks that share a layer: 1, the forward step draws its noise on each rank."""
    pipeline_model_parallel_size: Positive = 1
    """Stages: 1."""
    context_parallel_size: Positive = 1
    """Ranks that share a sequence: 1."""
    sequence_parallel: bool = False
    """Split activations along the sequence: false, text and image lie on that axis."""
    use_distributed_optimizer: bool = True
    """Share optimizer state among data-parallel ranks."""
    overlap_grad_reduce: bool = False
    """Reduce gradients while backward still runs."""
    overlap_param_gather: bool = False
    """Gather parameters while forward already runs."""
    ddp_bucket_size: Positive | None = None
    """Parameters in a communication bucket; null: Megatron's choice."""
    ddp_average_in_collective: bool = False
    """Average gradients in the collective rather than scale them before."""
    defer_grad_buffer_zero: bool = False
    """Let the first gradient of a step overwrite the buffer instead of zeroing all of it."""
    gradient_accumulation_fusion: bool = False
    """Add weight gradients to the buffer inside the GEMM."""
    distributed_backend: Literal["nccl", "gloo"] | None = None
    """Collectives: nccl (RCCL on AMD) on GPUs, gloo on CPUs; null chooses by device."""
    distributed_timeout_minutes: Positive = 10
    """Minutes after which a collective counts as hung."""
