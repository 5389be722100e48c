# SPDX-License-Identifier: Apache-2.0
"""torchtitan's Flux: release 0.2.2, or 0.3.0 where torch is new enough for it.

Left as torchtitan has it, but for two settings that would change the arithmetic compared. The
blocks of 0.2.2 do not say that their attention is not causal, and its default is causal: here it
is not, as in 0.3.0. cuDNN's attention is out, as it is for everyone here.
"""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.fsdp
from torch.nn.attention import SDPBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.benchmarks.workload import Workload
    from mxflux.flux.architecture import FluxArchitecture

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""torchtitan's own order, without cuDNN."""


def requirement() -> str:
    """The newest release that imports: 0.3.0 takes a name from torch that 2.11 does not have."""
    new = hasattr(torch.distributed.fsdp, "DataParallelMeshDims")
    return "torchtitan==0.3.0" if new else "torchtitan==0.2.2"


def build(work: Workload) -> torch.nn.Module:
    """The model. Raises ValueError saying what to install when torchtitan does not import."""
    try:
        from torchtitan.models.flux.model.model import FluxModel
    except ImportError as error:
        raise ValueError(explain(error, metadata.version("torchtitan"))) from error
    before = torch.get_default_dtype()
    torch.set_default_dtype(work.dtype)
    try:
        with torch.device(work.device):
            model: torch.nn.Module
            if hasattr(FluxModel, "Config"):
                model = _config(work.architecture).build()
            else:
                model = _before_config(FluxModel, work.architecture)
    finally:
        torch.set_default_dtype(before)
    for module in model.modules():
        if hasattr(module, "sdpa_backends"):
            module.sdpa_backends = list(BACKENDS)  # type: ignore[assignment]
    return model.to(work.dtype)


def explain(error: ImportError, version: str) -> str:
    """What to install, then why."""
    missing = (error.name or "").partition(".")[0]
    other = isinstance(error, ModuleNotFoundError) and missing not in {"", "torch", "torchtitan"}
    wanted = missing if other else requirement()
    why = str(error).partition(" (")[0]
    return (
        f"pip install {wanted}: torchtitan {version} does not import with torch "
        f"{torch.__version__}: {why}"
    )


def _sizes(arch: FluxArchitecture) -> dict[str, Any]:
    """Fields that the two releases share."""
    return {
        "in_channels": arch.in_channels,
        "out_channels": arch.out_channels,
        "vec_in_dim": arch.vec_in_dim,
        "context_in_dim": arch.context_dim,
        "hidden_size": arch.hidden_size,
        "mlp_ratio": arch.ffn_hidden_size / arch.hidden_size,
        "num_heads": arch.num_attention_heads,
        "depth": arch.num_joint_layers,
        "depth_single_blocks": arch.num_single_layers,
        "axes_dim": arch.axes_dim,
        "theta": arch.theta,
        "qkv_bias": arch.add_qkv_bias,
    }


def _before_config(model_class: Any, arch: FluxArchitecture) -> torch.nn.Module:
    """Release 0.2.2."""
    from torchtitan.models.attention import ScaledDotProductAttentionWrapper
    from torchtitan.models.flux.model.args import FluxModelArgs

    class Bidirectional(ScaledDotProductAttentionWrapper):  # type: ignore[misc]
        """Attention of every token to every token."""

        def forward(self, *qkv: torch.Tensor) -> torch.Tensor:
            """q, k, v of [B, heads, tokens, head size]."""
            output: torch.Tensor = super().forward(*qkv, is_causal=False)
            return output

    model: torch.nn.Module = model_class(FluxModelArgs(**_sizes(arch)))
    for block in blocks(model):
        block.inner_attention = Bidirectional()
    return model


def _config(arch: FluxArchitecture) -> Any:
    """Release 0.3.0: its debugging configuration with every size replaced."""
    from torchtitan.models import flux
    from torchtitan.models.common.linear import Linear

    def linear(fan_in: int, fan_out: int) -> Any:
        return Linear.Config(in_features=fan_in, out_features=fan_out, bias=True)

    def embedder(found: Any, fan_in: int) -> Any:
        return dataclasses.replace(
            found, in_dim=fan_in, hidden_dim=h, in_layer=linear(fan_in, h), out_layer=linear(h, h)
        )

    h, heads = arch.hidden_size, arch.num_attention_heads
    ratio = arch.ffn_hidden_size / h
    known = flux.flux_configs["flux-debug"]()
    joint = [
        flux._make_double_block_config(h, heads, ratio, arch.add_qkv_bias)
        for _ in range(arch.num_joint_layers)
    ]
    single = [
        flux._make_single_block_config(h, heads, ratio) for _ in range(arch.num_single_layers)
    ]
    return dataclasses.replace(
        known,
        **_sizes(arch),
        img_in=linear(arch.in_channels, h),
        txt_in=linear(arch.context_dim, h),
        pe_config=dataclasses.replace(
            known.pe_config, dim=arch.head_dim, theta=arch.theta, axes_dim=arch.axes_dim
        ),
        time_in_config=embedder(known.time_in_config, arch.model_channels),
        vector_in_config=embedder(known.vector_in_config, arch.vec_in_dim),
        double_blocks=joint,
        single_blocks=single,
        final_layer_config=dataclasses.replace(
            known.final_layer_config,
            hidden_size=h,
            out_channels=arch.out_channels,
            linear=linear(h, arch.out_channels),
            adaln_linear=linear(h, 2 * h),
        ),
    )


def blocks(model: Any) -> list[Any]:
    """Joint, then single ones."""
    return [*model.double_blocks, *model.single_blocks]


def forward(model: torch.nn.Module, work: Workload) -> Callable[[], torch.Tensor]:
    """Positions are given once, for all samples, as to the other models."""
    given = work.inputs()
    batch_first = {
        "img": given["img"].transpose(0, 1).contiguous(),
        "img_ids": given["img_ids"][:1].float(),
        "txt": given["txt"].transpose(0, 1).contiguous(),
        "txt_ids": given["txt_ids"][:1].float(),
        "timesteps": given["timesteps"],
        "y": given["y"],
    }

    def run() -> torch.Tensor:
        output: torch.Tensor = model(**batch_first)
        return output

    return run


def recompute(model: Any) -> None:
    """The wrapper that torchtitan puts around each block in its `apply_ac`."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for stack in (model.double_blocks, model.single_blocks):
        for name, block in stack.named_children():
            stack.register_module(name, checkpoint_wrapper(block, preserve_rng_state=True))


def compile_blocks(model: Any) -> None:
    """As torchtitan's `apply_compile`: whole graphs."""
    for block in blocks(model):
        block.compile(fullgraph=True)
