# SPDX-License-Identifier: Apache-2.0
"""The CPU device stands in for CUDA, and leaves nothing behind; tests/tree runs Megatron on it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch

from mxflux.training import cpu_device

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Megatron in this process, and the test disables what it enables."""
    for name in [name for name in sys.modules if name.startswith("megatron")]:
        monkeypatch.delitem(sys.modules, name)
    yield
    assert cpu_device._enabled is None


def test_devices() -> None:
    """Every way to say CUDA that Megatron uses means the CPU."""
    with cpu_device.cpu_device(despite_cuda=True):
        assert torch.cuda.current_device() == CPU
        for device in ("cuda", "cuda:0", torch.device("cuda"), torch.cuda.current_device()):
            assert torch.zeros(2, device=device).device == CPU
            assert torch.ones(2).to(device).device == CPU
        assert torch.ones(2).cuda().device == CPU
        assert torch.ones(2).to(device="cuda", dtype=torch.bfloat16).dtype == torch.bfloat16


def test_type_names() -> None:
    """Megatron compares them with those of CUDA tensors."""
    with cpu_device.cpu_device(despite_cuda=True):
        assert torch.ones(2).type() == "torch.cuda.FloatTensor"
        assert torch.ones(2).bfloat16().type() == "torch.cuda.BFloat16Tensor"
    assert torch.ones(2).type() == "torch.FloatTensor"


def test_streams_and_events() -> None:
    """There is nothing to wait for."""
    with cpu_device.cpu_device(despite_cuda=True):
        stream, event = torch.cuda.Stream(device=torch.cuda.current_device()), torch.cuda.Event()
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.current_stream())
            stream.wait_event(event)
            event.record(stream)
        event.synchronize()
        torch.cuda.synchronize()
        assert event.query()


def test_random_state() -> None:
    """Seeds and states are those of the CPU generator."""
    with cpu_device.cpu_device(despite_cuda=True):
        torch.cuda.manual_seed(5)
        state = torch.cuda.get_rng_state(device="cuda")
        first = torch.rand(3)
        torch.cuda.random.set_rng_state(state, device="cuda")
        assert torch.equal(torch.rand(3), first)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), first)


def test_everything_is_restored() -> None:
    """Also when the block raises, and what Tensor only inherits."""

    def state() -> list[object]:
        replaced = cpu_device._replacements()
        return [vars(owner).get(name, "inherited") for owner, name, _ in replaced]

    before = state()
    with pytest.raises(KeyError), cpu_device.cpu_device(despite_cuda=True):
        assert state() != before
        raise KeyError("in the block")
    assert state() == before
    assert torch.zeros(1, device="meta").device.type == "meta"
    device = cpu_device.enable(despite_cuda=True)
    device.disable()
    device.disable()
    assert state() == before


def test_a_gpu_is_not_left_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device present, training on the CPU must be meant."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    with pytest.raises(RuntimeError, match=r"8 GPU\(s\) present.*despite_cuda=True"):
        cpu_device.enable()
    cpu_device.enable(despite_cuda=True).disable()


def test_twice_is_refused() -> None:
    """The second one could not say what it restores."""
    with (
        cpu_device.cpu_device(despite_cuda=True),
        pytest.raises(RuntimeError, match="already enabled"),
    ):
        cpu_device.enable()


def test_after_megatron_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron binds some of the functions when it is imported."""
    monkeypatch.setitem(sys.modules, "megatron.core.x", ModuleType("megatron.core.x"))
    with pytest.raises(RuntimeError, match=r"megatron\.core\.x is imported already"):
        cpu_device.enable(despite_cuda=True)
