# SPDX-License-Identifier: Apache-2.0
"""torch.cuda that answers like one gfx950 device (capability 9.5), for one test at a time.

Tensors stay on the CPU: a factory call for "cuda" gives a CPU tensor.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PROPERTIES = types.SimpleNamespace(
    major=9,
    minor=5,
    multi_processor_count=256,
    name="stub",
    total_memory=1 << 38,
    gcnArchName="gfx950",
)
#: Factories that TE calls with device="cuda". A torch function mode would not reach them: it is
#: off inside Tensor.backward.
_FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")


class _Scope(contextlib.nullcontext[None]):
    def __init__(self, *_args: object) -> None:
        super().__init__()


class _Generator:
    """The CPU's random state under the names that TE uses for a CUDA generator."""

    get_state = graphsafe_get_state = clone_state = staticmethod(torch.get_rng_state)
    set_state = graphsafe_set_state = staticmethod(torch.set_rng_state)


def _means_gpu(device: Any) -> bool:
    """Whether a device argument means the GPU; a bare index does, also to a CPU build of torch."""
    return isinstance(device, int) or torch.device(device).type == "cuda"


def _is_cuda(tensor: torch.Tensor) -> bool:
    """A lie to TE alone: what TE calls must still know a CPU tensor when it sees one."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    return caller.startswith("transformer_engine.") or tensor.device.type == "cuda"


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def call(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is not None and _means_gpu(device):
            device = "cpu"
        return factory(*args, device=device, **kwargs)

    return call


def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make TE take the CPU for a gfx950 until `monkeypatch` is undone."""
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_properties": lambda *_: PROPERTIES,
        "get_device_capability": lambda *_: (PROPERTIES.major, PROPERTIES.minor),
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda *_: None,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "device": _Scope,
        "default_generators": (_Generator,),
        "_lazy_init": lambda: None,
        "_lazy_call": lambda call: call(),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    for name in ("_lazy_init", "_lazy_call"):
        # imported by name there
        monkeypatch.setattr(f"transformer_engine.pytorch.distributed.{name}", answers[name])
    for name in _FACTORIES:
        monkeypatch.setattr(torch, name, _on_cpu(getattr(torch, name)))
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(_is_cuda))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_args, **_kwargs: self)
