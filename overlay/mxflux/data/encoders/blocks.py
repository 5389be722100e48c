# SPDX-License-Identifier: Apache-2.0
"""Pictures to latents without a network: the low frequencies of every 8x8 block, and back.

A stand-in for a VAE in tests, demonstrations and kernel work: deterministic, linear, the same
layout as Flux's own latents (16 channels, an eighth of the side), and its inverse gives back a
picture. It compresses worse than a trained VAE and its latents are no substitute for one's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mxflux.data.errors import DataError
from mxflux.data.settings import LATENT_FACTOR

COLOURS = ("rgb", "gray")
_SIDE = LATENT_FACTOR
_COEFFICIENTS = _SIDE * _SIDE
_LUMA_SHARE = 10 / 16
"""Of the channels of a colour picture; the rest is shared by the two colour differences."""


class BlockTransform:
    """Orthonormal 8x8 DCT-II of each block, lowest frequencies first, scaled per channel.

    Args:
        channels: latents a block is described with; beyond them detail is lost.
        colour: "rgb" (brightness and two colour differences) or "gray".

    Pictures are [B,3,H,W] or [B,1,H,W] fp32 in [-1,1], H and W multiples of 8; latents
    [B,channels,H/8,W/8] fp32. A coefficient of frequency (u,v) is weighted with 1 + 2(u+v):
    natural pictures have about as much less of it, and training then sees channels of like size.
    Raises DataError naming the argument.
    """

    def __init__(self, channels: int = 16, colour: str = "rgb") -> None:
        if colour not in COLOURS:
            raise DataError(f"colour={colour!r} is unknown. Choose from: {', '.join(COLOURS)}.")
        planes = 3 if colour == "rgb" else 1
        if not planes <= channels <= planes * _COEFFICIENTS:
            raise DataError(
                f"channels={channels}: blocks of {colour} pictures have between {planes} and "
                f"{planes * _COEFFICIENTS} coefficients"
            )
        self.channels = channels
        self.colour = colour
        self.planes = planes
        self._basis = _basis(_split(channels, planes))
        self._gain = _gains(_split(channels, planes))

    def encode(self, pictures: Tensor) -> Tensor:
        """Latents of pictures."""
        batch, planes, height, width = pictures.shape
        if planes != self.planes or height % _SIDE or width % _SIDE:
            raise DataError(
                f"pictures of shape {tuple(pictures.shape)}: expected {self.planes} planes "
                f"({self.colour}) and sides that are multiples of {_SIDE}"
            )
        blocks = _rotate(pictures.float()).reshape(
            batch, planes, height // _SIDE, _SIDE, width // _SIDE, _SIDE
        )
        # shape: planes p, block rows h and columns w, pixel rows i and columns j of a block
        coefficients = torch.einsum("cpij,bphiwj->bchw", self._basis, blocks)
        return coefficients * self._gain[:, None, None] / _SIDE

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of latents; what ``encode`` left out is zero. Not clamped."""
        batch, channels, height, width = latents.shape
        if channels != self.channels:
            raise DataError(f"latents have {channels} channels, the encoder {self.channels}")
        coefficients = latents.float() * _SIDE / self._gain[:, None, None]
        planes = torch.einsum("cpij,bchw->bphiwj", self._basis, coefficients)
        return _rotate_back(planes.reshape(batch, self.planes, height * _SIDE, width * _SIDE))


def _rotate(pictures: Tensor) -> Tensor:
    """RGB to brightness, red-blue and green-magenta: an orthonormal change of axes."""
    if pictures.shape[1] == 1:
        return pictures
    return torch.einsum("qp,bphw->bqhw", _AXES, pictures)


def _rotate_back(planes: Tensor) -> Tensor:
    return planes if planes.shape[1] == 1 else torch.einsum("qp,bqhw->bphw", _AXES, planes)


_AXES = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)
_AXES = (_AXES / _AXES.norm(dim=1, keepdim=True)).float()


def _split(channels: int, planes: int) -> list[int]:
    """Coefficients kept of each plane."""
    if planes == 1:
        return [channels]
    luma = max(channels - 2 * _COEFFICIENTS, min(_COEFFICIENTS, round(channels * _LUMA_SHARE)))
    rest = channels - luma
    return [luma, rest - rest // 2, rest // 2]


def _frequencies(count: int) -> list[tuple[int, int]]:
    """The ``count`` lowest (u, v), by distance from zero."""
    every = [(u, v) for u in range(_SIDE) for v in range(_SIDE)]
    return sorted(every, key=lambda uv: (uv[0] ** 2 + uv[1] ** 2, uv))[:count]


def _basis(counts: list[int]) -> Tensor:
    """[channels, planes, 8, 8]: the block that each channel stands for; orthonormal."""
    cosines = torch.tensor(
        [
            [math.cos(math.pi * (2 * i + 1) * u / (2 * _SIDE)) for i in range(_SIDE)]
            for u in range(_SIDE)
        ],
        dtype=torch.float64,
    )
    cosines *= math.sqrt(2 / _SIDE)
    cosines[0] /= math.sqrt(2)
    basis = torch.zeros(sum(counts), len(counts), _SIDE, _SIDE, dtype=torch.float64)
    channel = 0
    for plane, count in enumerate(counts):
        for u, v in _frequencies(count):
            basis[channel, plane] = torch.outer(cosines[u], cosines[v])
            channel += 1
    return basis.float()


def _gains(counts: list[int]) -> Tensor:
    return torch.tensor([1.0 + 2 * (u + v) for count in counts for u, v in _frequencies(count)])
