# SPDX-License-Identifier: Apache-2.0
"""TransformerEngine keeps packed weights between calls: who changed the weights must say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_QUANTIZED = ("fp8", "fp4", "fp6")


def pack_weights_anew(model: torch.nn.Module) -> None:
    """Have the next forward pass of each TransformerEngine linear quantize its weight again.

    Megatron's ``set_is_first_microbatch`` does so for FP8 and FP4 only, and only in its schedules.
    Does nothing for a model whose config names no quantized precision.
    """
    config = getattr(model, "config", None)
    if not any(getattr(config, name, None) for name in _QUANTIZED):
        return
    for module in model.modules():
        if hasattr(module, "is_first_microbatch"):
            linear: Any = module
            linear.is_first_microbatch = True
