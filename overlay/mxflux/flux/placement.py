# SPDX-License-Identifier: Apache-2.0
"""Where parameters are created."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .config import FluxConfig


def parameter_device(config: FluxConfig) -> torch.device | None:
    """None (torch's default: CPU, or meta inside that context) or the current accelerator."""
    if config.use_cpu_initialization or torch.get_default_device().type == "meta":
        return None
    return torch.device("cuda", torch.cuda.current_device())
