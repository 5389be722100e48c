# SPDX-License-Identifier: Apache-2.0
"""Peers compute what this model computes: the same parameters, and from them the same output."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from support.megatron_alone import without_te

from mxflux.benchmarks import peers
from mxflux.benchmarks.variants import VARIANTS, Variant, build, forward, step
from mxflux.benchmarks.workload import Workload
from mxflux.checkpoint.layouts import bfl_links, diffusers_links

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.checkpoint.links import Link
    from mxflux.flux.architecture import FluxArchitecture

with without_te(), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state

    import mxflux.flux.model  # noqa: F401  imports all of Megatron that the tests here use


@pytest.fixture(params=peers.NAMES)
def peer(request: pytest.FixtureRequest) -> Variant:
    name = str(request.param)
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install {peers.peer(name).requirement()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a peer warns of when it is imported
        peers.peer(name).build(work("flux_tiny"))
    return VARIANTS[name]


@pytest.fixture
def _megatron(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def work(preset: str) -> Workload:
    found = Workload.of(preset, ["joint", "single"], 2, (16, 8), "cpu")
    return Workload(found.architecture, 2, 16, 8, found.device, torch.float32)


def model_of(variant: Variant) -> torch.nn.Module:
    torch.manual_seed(5)
    return build(variant, work("flux_tiny"), precision="bf16", backend="", recompute=False)


def links(peer: str, arch: FluxArchitecture) -> list[Link]:
    return diffusers_links(arch) if peer == "diffusers" else bfl_links(arch)


def native_state(variant: Variant, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A peer's weights under the native names; torchtitan's are BFL's but for those of norms."""
    source = {
        name.replace("_norm.weight", "_norm.scale") if variant.peer == "torchtitan" else name: value
        for name, value in model.state_dict().items()
    }
    native: dict[str, torch.Tensor] = {}
    for link in links(variant.peer, work("flux_tiny").architecture):
        moved = link.to_native(tuple(source.pop(name) for name in link.foreign))
        native.update(zip(link.native, moved, strict=True))
    assert not source
    return native


def output(variant: Variant, model: torch.nn.Module) -> torch.Tensor:
    """[B, image tokens, channels], of the same inputs for every model."""
    torch.manual_seed(6)
    with torch.no_grad():
        found = forward(variant, model, work("flux_tiny"))()
    return found if variant.peer else found.transpose(0, 1)


def larger(model: torch.nn.Module) -> None:
    """Weights that leave no path negligible, biases too."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)


@pytest.mark.usefixtures("_megatron")
def test_a_peer_computes_the_same(peer: Variant) -> None:
    theirs, ours = model_of(peer), model_of(VARIANTS["eager"])
    larger(theirs)
    ours.load_state_dict(native_state(peer, theirs), strict=True)
    expected, found = output(VARIANTS["eager"], ours), output(peer, theirs)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())


@pytest.mark.parametrize("recomputed", [False, True])
def test_every_parameter_of_a_peer_has_a_gradient(peer: Variant, recomputed: bool) -> None:
    model = model_of(peer)
    if recomputed:
        peers.peer(peer.peer).recompute(model)
    run = forward(peer, model, work("flux_tiny"))
    run().pow(2).mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    before = [parameter.clone() for parameter in model.parameters()]
    step(model, run, train=True)()
    assert all(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )
