# SPDX-License-Identifier: Apache-2.0
"""The RoPE table: layout, other pairings refused, one slice object, one computation."""

from __future__ import annotations

import fusions_support as support
import pytest
import torch

from mxflux.fusions.rope_table import RopeTable, slice_pair, table_of


def angles(seq: int = 6, batch: int = 1, dim: int = 32) -> torch.Tensor:
    return torch.rand(seq, batch, 1, dim // 2).repeat_interleave(2, -1)


def test_a_row_is_cosines_then_sines_of_the_pairs() -> None:
    given = angles()
    table = RopeTable.from_angles(given).cos_sin
    assert torch.equal(table[..., :16], given[:, :, 0, ::2].cos())
    assert torch.equal(table[..., 16:], given[:, :, 0, ::2].sin())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.rand(6, 1, 1, 16).repeat(1, 1, 1, 2), "every pair .* duplicated"),
        (angles()[:, :, 0], r"angles shape: got \[6, 1, 32\], expected \[S, 1 or B, 1, D\]"),
        (angles().to(support.BF16), "angles dtype: got torch.bfloat16"),
        (angles(dim=24), "angles head dimension: got 24"),
    ],
)
def test_other_tables_are_refused(given: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RopeTable.from_angles(given)


def test_slices_are_views_and_identical_objects() -> None:
    table = RopeTable.from_angles(angles())
    text, image = table.split(2)
    assert table.split(2)[0] is text
    assert table.split(2)[1] is image
    assert image.cos_sin.data_ptr() == table.cos_sin[2:].data_ptr()
    assert (text.length, image.length) == (2, 4)
    q, k = slice_pair(table, table, 2, 6)
    assert q is k
    other = RopeTable.from_angles(angles())
    q, k = slice_pair(table, other, 2, 6)
    assert q is not k
    assert k.cos_sin.data_ptr() == other.cos_sin[2:].data_ptr()


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 2), (0, 7)])
def test_slices_stay_inside(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"RopeTable.slice: range: got .*, expected in 0..6"):
        RopeTable.from_angles(angles()).slice(*bounds)


def test_one_table_an_angles_tensor_and_never_a_stale_one() -> None:
    given = angles()
    first = table_of(given)
    assert table_of(given) is first
    given.add_(1)
    assert table_of(given) is not first
    assert table_of(angles()) is not first
