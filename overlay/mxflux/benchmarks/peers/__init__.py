# SPDX-License-Identifier: Apache-2.0
"""Other implementations of Flux, one module a peer: same sizes, same inputs, same arithmetic."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from mxflux.benchmarks.workload import Workload


class Peer(Protocol):
    """What the module of a peer offers."""

    def requirement(self) -> str:
        """What pip installs to have this peer beside the torch that runs."""

    def build(self, work: Workload) -> torch.nn.Module:
        """The model on the workload's device and in its dtype, weights as the peer leaves them."""

    def forward(self, model: torch.nn.Module, work: Workload) -> Callable[[], torch.Tensor]:
        """A call that returns the output [B, image tokens, channels] on one fixed batch."""

    def recompute(self, model: torch.nn.Module) -> None:
        """Recompute every block in backward, by the peer's own means."""

    def compile_blocks(self, model: torch.nn.Module) -> None:
        """torch.compile of every block."""


NAMES = ("diffusers", "torchtitan")
"""Peers by the name of their package."""


def peer(name: str) -> Peer:
    """The peer of that name, without importing its package."""
    return cast("Peer", import_module(f"{__name__}.{name}"))


def require(name: str) -> None:
    """Raise ValueError saying what to install unless the peer's package is there."""
    if find_spec(name) is None:
        wanted = peer(name).requirement()
        raise ValueError(f"--compare {name}: {name} is not installed. Run: pip install {wanted}")
