# SPDX-License-Identifier: Apache-2.0
"""Layer specs: which linears, norms and attention the blocks are built from."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from megatron.core.extensions import transformer_engine as te_extension
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

from .attention import AttentionSubmodules
from .blocks import BlockSubmodules, JointBlock, SingleBlock
from .core_attention import ScaledDotProductAttention
from .fused import fusion_gates
from .norms import RMSNorm
from .placement import parameter_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from mxflux.fusions.gates import FusionGates

    from .config import FluxConfig

_local_linears: Callable[[FluxConfig], tuple[type, type]] | None = None


def set_local_linear_provider(
    provider: Callable[[FluxConfig], tuple[type, type]] | None,
) -> None:
    """Name what builds the quantized (column, row) linears of the local spec."""
    global _local_linears  # noqa: PLW0603 - one process has one set of local linears
    _local_linears = provider


def get_flux_layer_spec(
    config: FluxConfig, gates: FusionGates | None = None
) -> TransformerBlockSubmodules:
    """Specs of all blocks, joint ones first, for ``config.transformer_impl``.

    ``gates`` are the model's fusion gates, shared by its blocks.
    Raises RuntimeError when TransformerEngine is asked for and missing, or when the local spec
    is asked for a precision that no local linear serves.
    """
    blocks = _te_block() if config.transformer_impl != "local" else _local_block(config)
    kinds = [JointBlock] * config.num_joint_layers + [SingleBlock] * config.num_single_layers
    params = {"gates": gates or fusion_gates(config)}
    specs = [ModuleSpec(module=kind, params=params, submodules=blocks) for kind in kinds]
    return TransformerBlockSubmodules(layer_specs=specs, layer_norm=None)


def gates_of(spec: TransformerBlockSubmodules | None) -> FusionGates | None:
    """The fusion gates that a spec's blocks share."""
    if spec is None or not spec.layer_specs:
        return None
    gates: FusionGates | None = spec.layer_specs[0].params.get("gates")
    return gates


def local_qk_layernorm(config: FluxConfig, hidden_size: int, eps: float) -> nn.Module:
    """RMSNorm of the local spec, in the parameter dtype."""
    return RMSNorm(hidden_size, eps, dtype=config.params_dtype, device=parameter_device(config))


def te_qk_layernorm(config: FluxConfig, hidden_size: int, eps: float) -> nn.Module:
    """TransformerEngine's RMSNorm, built from a private copy of the config."""
    private = copy.copy(config)
    private.normalization = "RMSNorm"
    norm: nn.Module = te_extension.TENorm(config=private, hidden_size=hidden_size, eps=eps)
    return norm


def _te_block() -> BlockSubmodules:
    if not te_extension.HAVE_TE:
        raise RuntimeError(
            "transformer_impl='transformer_engine' but transformer_engine cannot be imported: "
            "install it, or set transformer_impl='local'"
        )
    column, row = te_extension.TEColumnParallelLinear, te_extension.TERowParallelLinear
    return _block(column, row, te_extension.TEDotProductAttention, te_qk_layernorm)


def _local_block(config: FluxConfig) -> BlockSubmodules:
    column, row = _local_linear_types(config)
    plain = config.attention_backend in (AttnBackend.local, AttnBackend.unfused)
    core = DotProductAttention if plain else ScaledDotProductAttention
    return _block(column, row, core, local_qk_layernorm)


def _local_linear_types(config: FluxConfig) -> tuple[type, type]:
    asked = next((name for name in ("fp8", "fp4", "fp6") if getattr(config, name)), None)
    if asked is None:
        return ColumnParallelLinear, RowParallelLinear
    if _local_linears is None:
        raise RuntimeError(
            f"{asked}={getattr(config, asked)!r} with transformer_impl='local': no local linear "
            "serves it and the run would silently be BF16. Set "
            "transformer_impl='transformer_engine'."
        )
    return _local_linears(config)


def _block(column: type, row: type, core: type, norm: Callable[..., nn.Module]) -> BlockSubmodules:
    attention = AttentionSubmodules(
        linear_qkv=column, linear_proj=row, core_attention=core, qk_layernorm=norm
    )
    return BlockSubmodules(
        attention=attention, mlp=MLPSubmodules(linear_fc1=column, linear_fc2=row)
    )
