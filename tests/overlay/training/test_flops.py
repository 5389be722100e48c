# SPDX-License-Identifier: Apache-2.0
"""The closed form against the sum over every matrix of the architecture."""

from __future__ import annotations

from math import prod

import pytest

from mxflux.flux.architecture import FLUX_12B, FLUX_535M, FLUX_TINY, FluxArchitecture
from mxflux.training.flops import forward_flops, training_flops

PER_VECTOR = ("timestep_embedding", "vector_embedding", "guidance_embedding", "adaLN")
TEXT_ONLY = ("txt_embed", "added_", "context_mlp")


def products(arch: FluxArchitecture, image: int, text: int) -> int:
    """2 * elements of each weight matrix * rows that pass it, and the two of attention."""
    total = 0
    for name, shape in arch.parameter_shapes().items():
        if len(shape) != 2:
            continue
        joint = name.startswith(
            tuple(f"transformer.layers.{n}." for n in range(arch.num_joint_layers))
        )
        if any(part in name for part in PER_VECTOR):
            rows = 1
        elif any(part in name for part in TEXT_ONLY):
            rows = text
        elif joint or name.startswith(("img_embed", "proj_out")):
            rows = image
        else:
            rows = image + text
        total += 2 * prod(shape) * rows
    return total + arch.num_layers * 4 * (image + text) ** 2 * arch.hidden_size


@pytest.mark.parametrize(
    "arch",
    [FLUX_TINY, FLUX_535M, FLUX_12B, FluxArchitecture(guidance_embed=True, num_joint_layers=3)],
    ids=["tiny", "535m", "12b", "guidance"],
)
def test_forward_is_the_sum_over_all_matrices(arch: FluxArchitecture) -> None:
    for image, text in ((256, 256), (4096, 512), (16, 8)):
        assert forward_flops(arch, image, text) == products(arch, image, text)


def test_backward_costs_twice_the_forward() -> None:
    assert training_flops(FLUX_12B, 256, 256) == 3 * forward_flops(FLUX_12B, 256, 256)


def test_12b_at_256_pixels() -> None:
    """57 blocks, each token past 113.2e6 weights of each: 57 * 2 * 113.2e6 * 512 = 6.6e12."""
    assert forward_flops(FLUX_12B, 256, 256) / 1e12 == pytest.approx(6.807, abs=1e-3)
