# SPDX-License-Identifier: Apache-2.0
"""The RoPE table as the kernels read it: fp32 cos and sin, one computation a step."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch

from mxflux.fusions import checks


@dataclass(frozen=True, eq=False)
class RopeTable:
    """cos_sin: [S, 1 or B, D], fp32 (fp64 for gradient checks); a row is [cos of D/2 pairs | sin of
    D/2 pairs].
    """

    cos_sin: torch.Tensor
    _slices: dict[tuple[int, int], RopeTable] = field(default_factory=dict, repr=False)

    @classmethod
    def from_angles(cls, angles: torch.Tensor) -> RopeTable:
        """From Megatron's table: angles [S, 1 or B, 1, D] with adjacent pairs duplicated.

        Raises ValueError for another shape, dtype or pairing (half-and-half tables rotate wrong
        pairs silently). On a GPU the pairing is asserted on the device, without a synchronization.
        """
        checks.require(_angles_problem(angles), "RopeTable.from_angles")
        even, odd = angles[..., 0::2], angles[..., 1::2]
        _require_pairs(even, odd)
        half = even.squeeze(2)
        return cls(torch.cat([half.cos(), half.sin()], dim=-1))

    @property
    def length(self) -> int:
        """Positions S."""
        return self.cos_sin.shape[0]

    def slice(self, start: int, stop: int) -> RopeTable:
        """Positions [start, stop) as a view; the same arguments give the same object."""
        if not 0 <= start <= stop <= self.length:
            raise ValueError(
                "RopeTable.slice: " + checks.expect("range", (start, stop), f"in 0..{self.length}")
            )
        found = self._slices.get((start, stop))
        if found is None:
            found = RopeTable(self.cos_sin[start:stop])
            found = self._slices.setdefault((start, stop), found)
        return found

    def split(self, text_length: int) -> tuple[RopeTable, RopeTable]:
        """The text and image parts of a joint block; text comes first (statement 19)."""
        return self.slice(0, text_length), self.slice(text_length, self.length)


_tables: dict[int, tuple[weakref.ref[torch.Tensor], int, RopeTable]] = {}


def table_of(angles: torch.Tensor) -> RopeTable:
    """`RopeTable.from_angles(angles)`, computed once while `angles` is alive and unchanged.

    All blocks of a step pass one tensor, so cos and sin are computed once a step, not once a block.
    """
    found = _tables.get(id(angles))
    if found is not None and found[0]() is angles and found[1] == angles._version:
        return found[2]
    table = RopeTable.from_angles(angles)
    key = id(angles)
    forget = weakref.ref(angles, lambda _: _tables.pop(key, None))
    _tables[key] = (forget, angles._version, table)
    return table


def slice_pair(
    q_table: RopeTable, k_table: RopeTable, start: int, stop: int
) -> tuple[RopeTable, RopeTable]:
    """Both slices; one object when both tables are one object (statement 52)."""
    q_slice = q_table.slice(start, stop)
    return q_slice, q_slice if k_table is q_table else k_table.slice(start, stop)


def _angles_problem(angles: torch.Tensor) -> str | None:
    if angles.dim() != 4 or angles.shape[2] != 1:
        return checks.expect("angles shape", list(angles.shape), "[S, 1 or B, 1, D]")
    if angles.dtype not in (torch.float32, torch.float64):
        return checks.expect("angles dtype", angles.dtype, "torch.float32")
    return checks.head_dim("angles", angles.shape[-1])


def _require_pairs(even: torch.Tensor, odd: torch.Tensor) -> None:
    message = "RopeTable.from_angles: " + checks.expect(
        "angles", "unequal neighbours", "every pair (2i, 2i+1) duplicated (rotary_interleaved)"
    )
    if even.device.type == "cuda":
        torch._assert_async((even == odd).all(), message)
    elif not torch.equal(even, odd):
        raise ValueError(message)
