# SPDX-License-Identifier: Apache-2.0
"""Section `compile`: torch.compile."""

from __future__ import annotations

from typing import Literal

from .base import Section


class Compile(Section):
    """Off by default, and refused with TransformerEngine's FP4."""

    enable: bool = False
    """Compile the model after DDP has wrapped it."""
    strategy: Literal[
        "per_block", "whole_model", "double_stack", "single_stack", "stack", "full_dit"
    ] = "per_block"
    """What becomes one graph: a block, the model, the joint or single blocks, both, or all of the
    transformer (TransformerEngine only)."""
    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """Compiler; the other two are for finding faults."""
    mode: Literal["default", "max-autotune-no-cudagraphs"] = "default"
    """Inductor's preset."""
    fullgraph: bool = False
    """Refuse graph breaks."""
    emulate_precision_casts: bool = False
    """Round inside fused kernels as eager does."""
