# SPDX-License-Identifier: Apache-2.0
"""The model against diffusers' FluxTransformer2DModel: output and every parameter gradient.

Truth is an fp64 run of both, which must agree with each other. In fp32 and bf16 our error
against it may not exceed twice diffusers' own error (three-way bound).
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import flux_tiny as tiny
import pytest
import torch
from torch.overrides import TorchFunctionMode

from mxflux.checkpoint.layouts import diffusers_links

if TYPE_CHECKING:
    from torch import Tensor

diffusers = pytest.importorskip("diffusers", reason="parity needs diffusers: pip install diffusers")

Result = dict[str, "Tensor"]


class Float64Throughout(TorchFunctionMode):
    """Turns the fp32 islands of both models (norms, sinusoid, rotation) into fp64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            return args[0].double()
        if func is torch.Tensor.to:
            args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def theirs(guidance: bool, dtype: torch.dtype) -> torch.nn.Module:
    arch = tiny.ARCHITECTURE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = diffusers.FluxTransformer2DModel(
            in_channels=arch.in_channels,
            num_layers=arch.num_joint_layers,
            num_single_layers=arch.num_single_layers,
            attention_head_dim=arch.head_dim,
            num_attention_heads=arch.num_attention_heads,
            joint_attention_dim=arch.context_dim,
            pooled_projection_dim=arch.vec_in_dim,
            guidance_embeds=guidance,
            axes_dims_rope=arch.axes_dim,
        )
    tiny.randomize(net)
    # bf16-representable weights: every precision starts from the same numbers.
    return net.bfloat16().to(dtype)


def ours(guidance: bool, dtype: torch.dtype) -> torch.nn.Module:
    net = tiny.model(guidance_embed=guidance).to(dtype)
    source = theirs(guidance, dtype).state_dict()
    native: dict[str, Tensor] = {}
    for link in diffusers_links(net.config.architecture):
        moved = link.to_native(tuple(source.pop(name) for name in link.foreign))
        native.update(zip(link.native, moved, strict=True))
    assert not source
    net.load_state_dict(native, strict=True)
    return net


def loss(output: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output)
    return (output.double() * weights).sum()


def run_theirs(guidance: bool, dtype: torch.dtype) -> Result:
    net, x = theirs(guidance, dtype), tiny.cast(tiny.inputs(guidance=guidance), dtype)
    output = net(
        hidden_states=x["img"].transpose(0, 1),
        encoder_hidden_states=x["txt"].transpose(0, 1),
        pooled_projections=x["y"],
        timestep=x["timesteps"],
        img_ids=x["img_ids"][0],
        txt_ids=x["txt_ids"][0],
        guidance=x.get("guidance"),
    ).sample.transpose(0, 1)
    loss(output).backward()
    gradients = {name: p.grad for name, p in net.named_parameters()}
    result = {"output": output.detach()}
    for link in diffusers_links(tiny.config(guidance_embed=guidance).architecture):
        moved = link.to_native(tuple(gradients[name] for name in link.foreign))
        result.update(zip(link.native, moved, strict=True))
    return result


def run_ours(guidance: bool, dtype: torch.dtype) -> Result:
    net, x = ours(guidance, dtype), tiny.cast(tiny.inputs(guidance=guidance), dtype)
    output = net(**x)
    loss(output).backward()
    gradients = {name: p.grad for name, p in net.named_parameters()}
    return {"output": output.detach(), **gradients}


@cache
def truth(guidance: bool) -> Result:
    with Float64Throughout():
        return run_theirs(guidance, torch.float64)


def error(value: Tensor, exact: Tensor) -> float:
    return float((value.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("guidance", [False, True])
def test_fp64_runs_agree(guidance: bool) -> None:
    with Float64Throughout():
        mine = run_ours(guidance, torch.float64)
    exact = truth(guidance)
    assert mine.keys() == exact.keys()
    assert all(exact[name].norm() > 0 for name in exact)
    worst = max((error(mine[name], exact[name]), name) for name in exact)
    assert worst[0] < 1e-11, worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("guidance", [False, True])
def test_error_is_within_twice_that_of_diffusers(guidance: bool, dtype: torch.dtype) -> None:
    mine, other, exact = run_ours(guidance, dtype), run_theirs(guidance, dtype), truth(guidance)
    floor = torch.finfo(dtype).eps
    beyond = {
        name: (error(mine[name], exact[name]), error(other[name], exact[name]))
        for name in exact
        if error(mine[name], exact[name]) > 2 * error(other[name], exact[name]) + floor
    }
    assert not beyond
