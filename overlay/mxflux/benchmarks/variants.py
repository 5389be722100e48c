# SPDX-License-Identifier: Apache-2.0
"""The implementations that a step is timed with: this model in its modes, and diffusers' model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

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
    """One implementation. fused: gates on. compiled: torch.compile of each block."""

    name: str
    fused: bool = False
    compiled: bool = False
    peer: bool = False


VARIANTS = {
    "eager": Variant("eager"),
    "fused": Variant("fused", fused=True),
    "compile": Variant("compile", compiled=True),
    "compile-fused": Variant("compile-fused", fused=True, compiled=True),
    "diffusers": Variant("diffusers", peer=True),
    "diffusers-compile": Variant("diffusers-compile", compiled=True, peer=True),
}
GROUPS = {
    "eager": ("eager", "fused"),
    "compile": ("compile", "compile-fused"),
    "diffusers": ("diffusers", "diffusers-compile"),
}
"""--compare name -> variants."""


def build(
    variant: Variant, work: Workload, *, precision: str, backend: str, recompute: bool
) -> torch.nn.Module:
    """A model with random weights, in training mode; `prepare_megatron` has run for ours."""
    if variant.peer:
        model = _diffusers(work)
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


def _diffusers(work: Workload) -> torch.nn.Module:
    from diffusers import FluxTransformer2DModel

    arch = work.architecture
    before = torch.get_default_dtype()
    torch.set_default_dtype(work.dtype)
    try:
        with torch.device(work.device):
            model: torch.nn.Module = FluxTransformer2DModel(
                patch_size=1,
                in_channels=arch.in_channels,
                num_layers=arch.num_joint_layers,
                num_single_layers=arch.num_single_layers,
                attention_head_dim=arch.head_dim,
                num_attention_heads=arch.num_attention_heads,
                joint_attention_dim=arch.context_dim,
                pooled_projection_dim=arch.vec_in_dim,
                guidance_embeds=False,
                axes_dims_rope=arch.axes_dim,
            )
    finally:
        torch.set_default_dtype(before)
    return model.to(work.dtype)


def forward(variant: Variant, model: Any, work: Workload) -> Callable[[], torch.Tensor]:
    """A call that returns the model's output on one fixed batch."""
    given = work.inputs()
    if not variant.peer:
        return lambda: model(**given)
    batch_first = {
        "hidden_states": given["img"].transpose(0, 1).contiguous(),
        "encoder_hidden_states": given["txt"].transpose(0, 1).contiguous(),
        "pooled_projections": given["y"],
        "timestep": given["timesteps"],
        "img_ids": given["img_ids"][0].float(),
        "txt_ids": given["txt_ids"][0].float(),
    }
    return lambda: model(**batch_first, return_dict=False)[0]


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


def compile_peer_blocks(model: Any) -> None:
    """torch.compile of each of diffusers' blocks."""
    for block in (*model.transformer_blocks, *model.single_transformer_blocks):
        block.compile()
