# SPDX-License-Identifier: Apache-2.0
"""The closed form of activations against what autograd really keeps from forward to backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_recipe import recipe

from mxflux.flux.model import FluxModel
from mxflux.flux.patchify import image_ids, text_ids
from mxflux.recipe.memory import activations, rank_memory
from mxflux.training.configs import flux_config

SIDE, TEXT, BATCH = 4, 16, 4
SIZES = {
    "model.num_joint_layers": 2,
    "model.num_single_layers": 2,
    "model.in_channels": 16,
    "model.context_dim": 64,
    "data.image_size": SIDE * 16,
    "data.text_length": TEXT,
    "schedule.micro_batch_size": BATCH,
}


def kept(model: FluxModel) -> int:
    """Bytes of all storages that autograd saves in one forward, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=model.config.params_dtype)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(
            draw(SIDE * SIDE, BATCH, 16),
            draw(TEXT, BATCH, 64),
            draw(BATCH, 32),
            torch.rand(BATCH, dtype=model.config.params_dtype),
            image_ids(BATCH, 2 * SIDE, 2 * SIDE, device="cpu"),
            text_ids(BATCH, TEXT, device="cpu"),
        )
    assert output.shape == (SIDE * SIDE, BATCH, 16)
    return sum(size for size, _ in storages.values())


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision.params_dtype": "float32"},
        {
            "model.ffn_hidden_size": 768,
            "model.num_attention_heads": 2,
            "model.axes_dim": [16, 24, 24],
        },
    ],
    ids=str,
)
def test_the_closed_form_is_within_3_percent_of_what_is_kept(changes: dict[str, Any]) -> None:
    given = recipe({**SIZES, **changes})
    assert activations(given) == pytest.approx(kept(FluxModel(flux_config(given))), rel=0.03)


@pytest.mark.usefixtures("_one_rank")
def test_parameters_are_those_of_the_model() -> None:
    given = recipe(SIZES)
    model = FluxModel(flux_config(given))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    assert rank_memory(given, 1).parameters == size
