# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding over three axes, interleaved pairs, angles in float64 -> fp32."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .architecture import check_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxflux.fusions.rope_table import RopeTable

_ID_DTYPES = (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)


class EmbedND:
    """Angles of a position over several axes.

    omega_i = theta^(-2i/d) and angle = position * omega are computed in float64 and rounded to
    fp32 once; each angle is stored twice, for the two members of its pair.
    Source: BFL flux ``math.rope``, RoFormer (arXiv 2104.09864).
    """

    def __init__(self, theta: int, axes_dim: Sequence[int], head_dim: int) -> None:
        check_axes(tuple(axes_dim), head_dim)
        self.theta = theta
        self.axes_dim = tuple(axes_dim)

    def __call__(self, ids: Tensor) -> Tensor:
        """Angles [S,B,1,head_dim] fp32 of ids [B,S,3] (integers or fp32).

        Raises ValueError for another shape, and for 16-bit floats, which round positions above
        256 (bf16) or 2048 (fp16).
        """
        if ids.dim() != 3 or ids.shape[-1] != len(self.axes_dim):
            raise ValueError(f"ids must be [B,S,{len(self.axes_dim)}], got {tuple(ids.shape)}")
        if ids.dtype not in _ID_DTYPES:
            raise ValueError(
                f"ids have dtype {ids.dtype}; use integers or fp32: narrow floats round positions"
            )
        position = ids.to(torch.float64)
        angles = torch.cat(
            [position[..., axis, None] * self._omega(width, ids.device)
             for axis, width in enumerate(self.axes_dim)],
            dim=-1,
        )  # fmt: skip
        # [B,S,D/2] -> [S,B,1,D]
        return angles.float().repeat_interleave(2, dim=-1).transpose(0, 1).unsqueeze(2)

    def _omega(self, width: int, device: torch.device) -> Tensor:
        exponent = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
        return 1.0 / (self.theta**exponent)


class RotaryTable:
    """Angles of the concatenated sequence [text; image] with their cosines and sines.

    One object serves q and k of every block; ``split`` is cached, so that identity survives
    slicing, and nothing is computed twice in a step.
    """

    def __init__(self, angles: Tensor) -> None:
        if angles.dim() != 4 or angles.shape[2] != 1:
            raise ValueError(f"angles must be [S,B,1,D], got {tuple(angles.shape)}")
        self.angles = angles
        self._split: tuple[int, tuple[RotaryTable, RotaryTable]] | None = None

    def __len__(self) -> int:
        return self.angles.shape[0]

    @cached_property
    def cos(self) -> Tensor:
        """Cosines [S,B,1,D] fp32."""
        return torch.cos(self.angles)

    @cached_property
    def sin(self) -> Tensor:
        """Sines [S,B,1,D] fp32."""
        return torch.sin(self.angles)

    @cached_property
    def fused(self) -> RopeTable:
        """The table as the fused kernels read it."""
        from mxflux.fusions.rope_table import RopeTable

        return RopeTable.from_angles(self.angles)

    def split(self, length: int) -> tuple[RotaryTable, RotaryTable]:
        """Tables of the first ``length`` (text) and of the other (image) positions."""
        if not 0 < length < len(self):
            raise ValueError(f"cannot split a table of {len(self)} positions at {length}")
        if self._split is None or self._split[0] != length:
            parts = (RotaryTable(self.angles[:length]), RotaryTable(self.angles[length:]))
            self._split = (length, parts)
        return self._split[1]


def apply_rotary(x: Tensor, table: RotaryTable) -> Tensor:
    """Rotate pairs (x0,x1) -> (x0*c - x1*s, x1*c + x0*s); x [S,B,heads,D], result in x.dtype.

    The products are formed in fp32 at least, and rounded to x.dtype once.
    """
    cos, sin = table.cos, table.sin
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    pairs = wide.unflatten(-1, (-1, 2))
    rotated = torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    return (wide * cos + rotated * sin).to(x.dtype)
