# SPDX-License-Identifier: Apache-2.0
"""The implementations that a step is timed with: this model in its modes, and its peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.benchmarks.peers import peer

if TYPE_CHECKING:
    from mxflux.benchmarks.workload import Workload

Step = Callable[[], None]
FUSED = ("fused_qkv_prologue", "fused_ln_modulate", "fused_gate_residual", "fused_mlp")
"""Gates of the BF16 model."""

CHAINS = (
    "fused_qkv_prologue", "fused_mlp", "fused_ln_pack", "fused_gate_residual", "fused_ln_modulate",
)  # fmt: skip
"""Gates of a model with MX linears."""

PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "mxfp4": {"fp4": "e2m1", "fp4_recipe": "mxfp4"},
    "mxfp6": {"fp6": "e2m3"},
}


@dataclass(frozen=True)
class Variant:
    """One implementation. fused: gates on. compiled: torch.compile of each block.

    peer: whose model, "" for this one.
    """

    name: str
    fused: bool = False
    compiled: bool = False
    peer: str = ""


VARIANTS = {
    "eager": Variant("eager"),
    "fused": Variant("fused", fused=True),
    "compile": Variant("compile", compiled=True),
    "compile-fused": Variant("compile-fused", fused=True, compiled=True),
    "diffusers": Variant("diffusers", peer="diffusers"),
    "diffusers-compile": Variant("diffusers-compile", compiled=True, peer="diffusers"),
    "torchtitan": Variant("torchtitan", peer="torchtitan"),
    "torchtitan-compile": Variant("torchtitan-compile", compiled=True, peer="torchtitan"),
}
GROUPS = {
    "eager": ("eager", "fused"),
    "compile": ("compile", "compile-fused"),
    "diffusers": ("diffusers", "diffusers-compile"),
    "torchtitan": ("torchtitan", "torchtitan-compile"),
}
"""--compare name -> variants."""


def build(
    variant: Variant, work: Workload, *, precision: str, backend: str, recompute: bool
) -> torch.nn.Module:
    """A model with random weights, in training mode; `prepare_megatron` has run for ours.

    Raises ValueError when a peer's model is not of the same size.
    """
    if variant.peer:
        model = _peer(variant, work)
    else:
        model = _ours(variant, work, precision, backend, recompute)
    with torch.no_grad():
        for parameter in model.parameters():
            norm = parameter.dim() < 2
            parameter.fill_(1.0) if norm else parameter.normal_(std=0.02)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return model.train()


def _ours(
    variant: Variant, work: Workload, precision: str, backend: str, recompute: bool
) -> torch.nn.Module:
    from mxflux.flux.config import FluxConfig
    from mxflux.flux.layer_specs import set_local_linear_provider
    from mxflux.flux.model import FluxModel

    gates = FUSED if precision == "bf16" else CHAINS
    fields: dict[str, Any] = {
        "transformer_impl": "local",
        "params_dtype": work.dtype,
        "bf16": work.dtype == torch.bfloat16,
        "use_cpu_initialization": work.device.type == "cpu",
        "perform_initialization": False,
        **(dict.fromkeys(gates, "on") if variant.fused else {}),
        **PRECISIONS[precision],
    }
    if recompute:
        full = {"granularity": "full", "method": "uniform", "num_layers": 1}
        fields |= {f"recompute_{name}": value for name, value in full.items()}
    if precision != "bf16":
        from mxflux.mx.megatron_linear import local_linear_provider

        set_local_linear_provider(local_linear_provider(backend))
    model = FluxModel(FluxConfig.from_architecture(work.architecture, **fields)).to(work.device)
    if variant.compiled:
        for layer in model.transformer.layers:
            layer.compile()
    return model


def _peer(variant: Variant, work: Workload) -> torch.nn.Module:
    model = peer(variant.peer).build(work)
    count, expected = sum(p.numel() for p in model.parameters()), work.architecture.num_parameters
    if count != expected:
        raise ValueError(f"{variant.peer}: {count} parameters, this model has {expected}")
    return model


def forward(variant: Variant, model: Any, work: Workload) -> Callable[[], torch.Tensor]:
    """A call that returns the model's output on one fixed batch."""
    if variant.peer:
        return peer(variant.peer).forward(model, work)
    given = work.inputs()
    return lambda: model(**given)


def step(model: torch.nn.Module, run: Callable[[], torch.Tensor], *, train: bool) -> Step:
    """Forward and backward; train: AdamW too, its states in the parameters' dtype."""
    optimizer = None
    if train:
        fused = next(model.parameters()).device.type == "cuda"
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def once() -> None:
        run().float().pow(2).mean().backward()
        if optimizer is not None:
            optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None

    return once
