# SPDX-License-Identifier: Apache-2.0
"""hadamard: orthonormal, its own inverse, Sylvester order, no needless overflow."""

from __future__ import annotations

import pytest
import torch

from mxflux.mx.errors import MXValueError
from mxflux.mx.hadamard import rotate


def sylvester(points: int) -> torch.Tensor:
    h = torch.ones(1, 1, dtype=torch.float64)
    while len(h) < points:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return h / points**0.5


@pytest.mark.parametrize("points", [16, 32])
def test_equals_the_matrix_and_is_its_own_inverse(points: int) -> None:
    x = torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    expected = (x.double().reshape(4, -1, points) @ sylvester(points)).reshape(4, 96)
    torch.testing.assert_close(rotate(x, points).double(), expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(rotate(rotate(x, points), points), x, rtol=0, atol=2e-6)


@pytest.mark.parametrize("points", [16, 32])
def test_partial_sums_overflow_only_when_the_result_does(points: int) -> None:
    largest = torch.finfo(torch.bfloat16).max
    x = torch.full((1, points), largest / 8)
    assert rotate(x, points).isfinite().all()
    assert rotate(torch.full((1, points), largest), points)[0, 0].isinf()


def test_zero_points_is_the_identity_and_others_are_refused() -> None:
    x = torch.randn(2, 64)
    assert rotate(x, 0) is x
    with pytest.raises(MXValueError, match="8 points"):
        rotate(x, 8)
