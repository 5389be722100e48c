# SPDX-License-Identifier: Apache-2.0
"""Initial values of everything that Megatron's linears do not initialize themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from .embeddings import MLPEmbedder
from .modulation import AdaLNModulation

if TYPE_CHECKING:
    from .model import FluxModel


def initialize(model: FluxModel) -> None:
    """Draw or set the initial weights, as in MLPerf Training v5.1's Flux.

    Image and text embedding: config.init_method (Xavier uniform). MLP embedders:
    Normal(0, config.init_method_std). Modulations and output head: zero, so that every block
    starts as the identity and the model's output is exactly zero. Biases: zero.
    """
    config = model.config
    for linear in (model.img_embed, model.txt_embed):
        config.init_method(linear.weight)
        nn.init.zeros_(linear.bias)
    for module in model.modules():
        if isinstance(module, MLPEmbedder):
            for linear in (module.in_layer, module.out_layer):
                nn.init.normal_(linear.weight, std=config.init_method_std)
                nn.init.zeros_(linear.bias)
        elif isinstance(module, AdaLNModulation):
            _zero(module.adaLN_modulation[1])
    _zero(model.proj_out)


def _zero(linear: nn.Module) -> None:
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
