# SPDX-License-Identifier: Apache-2.0
"""The fused chains as a block asks for them: Megatron's modules in, mxflux.fusions behind.

MX linears run the MX chains. In BF16 the same gates add each bias in its GEMM's epilogue, where
Megatron's linears launch a kernel for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from torch.nn import functional

from mxflux.fusions import checks, mx_mlp, mx_norm, mx_qkv, norm_rope_qkv
from mxflux.fusions.mx_operands import PackedInput, hook_problem, linear_problem

from .fused import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from .config import FluxConfig
    from .rope import RotaryTable

    Input = Tensor | PackedInput

QKV = tuple["Tensor", "Tensor", "Tensor"]


@dataclass(frozen=True)
class Reader:
    """An MX linear that reads a norm's output through a fused chain.

    problem: what speaks against that chain for an input like the given one.
    """

    linear: nn.Module
    problem: Callable[[Tensor], str | None]


def refusal(config: FluxConfig) -> str | None:
    """What a config has against chains of local linears."""
    if config.transformer_impl != "local":
        return checks.expect("transformer_impl", config.transformer_impl, "local")
    return None


def mx_refusal(config: FluxConfig) -> str | None:
    """What a config has against chains of MX linears."""
    if config.transformer_impl != "local" or config.asked_precision is None:
        got = f"transformer_impl={config.transformer_impl}, {config.asked_precision or 'bf16'}"
        return checks.expect("precision", got, "transformer_impl=local with fp8, fp4 or fp6")
    return None


def plain_problem(name: str, module: Any) -> str | None:
    """Why a linear is not one of Megatron's own, whole on this rank."""
    if type(module) not in (ColumnParallelLinear, RowParallelLinear):
        return checks.expect(name, type(module).__name__, "a local linear, MX or Megatron's own")
    config = module.config
    pinned = {
        "tensor_model_parallel_size": 1,
        "sequence_parallel": False,
        "gradient_accumulation_fusion": False,
    }
    for key, wanted in pinned.items():
        if getattr(config, key) != wanted:
            return checks.expect(key, getattr(config, key), wanted)
    return hook_problem(name, module)


def is_mx(module: Any) -> bool:
    """Whether a linear multiplies in an MX format."""
    return hasattr(module, "plan")


def mlp_refusal(config: FluxConfig) -> str | None:
    """What a config has against the fused MLP: its activation is the tanh-approximated GELU."""
    from .config import gelu_tanh

    return refusal(config) or checks.first(
        None
        if config.activation_func is gelu_tanh
        else checks.expect("activation_func", config.activation_func, "openai_gelu"),
        checks.expect("gated_linear_unit", True, False) if config.gated_linear_unit else None,
    )


def pack_refusal(config: FluxConfig) -> str | None:
    """What a config has against a norm that packs: every reader must take a packed input."""
    off = [key for key in ("fused_qkv_prologue", "fused_mlp") if getattr(config, key) == "off"]
    needs = checks.expect(", ".join(off), "off", "on or auto: they read what is packed")
    return mx_refusal(config) or (needs if off else None)


def qkv_prologue(
    hidden: Input, linear_qkv: Any, q_weight: Tensor, k_weight: Tensor, table: RotaryTable,
    *, heads: int, eps: float,
) -> QKV:  # fmt: skip
    """q, k, v [S,B,heads,D]."""
    announce(linear_qkv)
    if not is_mx(linear_qkv):
        mixed = functional.linear(hidden, linear_qkv.weight, linear_qkv.bias)
        split = mixed.unflatten(-1, (heads, -1))
        return norm_rope_qkv.norm_rope_qkv(split, q_weight, k_weight, table.fused, eps=eps)
    cos_sin = table.fused.cos_sin
    return mx_qkv.qkv_prologue(
        hidden, linear_qkv, q_weight, k_weight, cos_sin, heads=heads, eps=eps
    )


def qkv_problem(
    hidden: Input, linear_qkv: Any, q_weight: Tensor, k_weight: Tensor, table: RotaryTable
) -> str | None:
    """Why the prologue cannot run."""
    if not is_mx(linear_qkv):
        found = plain_problem("linear_qkv", linear_qkv)
        dim = q_weight.shape[0]
        if found is None and hidden.dtype == linear_qkv.weight.dtype:
            heads = linear_qkv.weight.shape[0] // (3 * dim)
            mixed = hidden[..., :1].unsqueeze(-1).expand(*hidden.shape[:2], heads, 3 * dim)
            return norm_rope_qkv.problem(mixed, q_weight, k_weight, table.fused.cos_sin)
        return found or checks.expect("hidden dtype", hidden.dtype, linear_qkv.weight.dtype)
    return mx_qkv.problem(hidden, linear_qkv, q_weight, k_weight, table.fused.cos_sin)


def mlp(module: Any, x: Input) -> tuple[Tensor, Tensor | None]:
    """Output of Megatron's MLP and its second bias, not yet added."""
    fc1, fc2 = module.linear_fc1, module.linear_fc2
    announce(module, fc1, fc2)
    if not is_mx(fc1):
        inner = functional.gelu(functional.linear(x, fc1.weight, fc1.bias), approximate="tanh")
        return functional.linear(inner, fc2.weight, fc2.bias), None
    return mx_mlp.mx_mlp(x, module.linear_fc1, module.linear_fc2), module.linear_fc2.bias


def mlp_problem(module: Any, x: Input) -> str | None:
    """Why the fused MLP cannot run."""
    if not is_mx(module.linear_fc1):
        return checks.first(
            plain_problem("linear_fc1", module.linear_fc1),
            plain_problem("linear_fc2", module.linear_fc2),
        )
    return mx_mlp.problem(x, module.linear_fc1, module.linear_fc2)


def pack_problem(x: Tensor, scale: Tensor, shift: Tensor, readers: Sequence[Reader]) -> str | None:
    """Why the norm's output cannot be packed once for all its readers."""
    first = readers[0].linear
    found = linear_problem("reader", first)
    if found is not None:
        return found
    wanted = mx_norm.specs(first.plan, columns=True)
    for reader in readers:
        found = linear_problem("reader", reader.linear) or reader.problem(x)
        if found is not None:
            return found
        specs = mx_norm.specs(reader.linear.plan, columns=True)  # type: ignore[arg-type]
        if specs != wanted:
            return checks.expect("readers", f"{wanted} and {specs}", "one packing")
    return mx_norm.problem(x, scale, shift, first.plan)  # type: ignore[arg-type]


def ln_pack(
    x: Tensor, scale: Tensor, shift: Tensor, readers: Sequence[Reader], *, eps: float
) -> PackedInput:
    """The LN-modulate of x, packed once; columns only where a weight gradient may follow."""
    linear: Any = readers[0].linear
    columns = _columns(readers)
    return mx_norm.ln_modulate_pack(
        x, scale, shift, linear.plan, columns=columns, site=linear.mx_site, eps=eps
    )


def gated_ln_pack(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, readers: Sequence[Reader],
    *, eps: float,
) -> tuple[Tensor, PackedInput]:  # fmt: skip
    """h = x + gate*y and its LN-modulate, packed once."""
    linear: Any = readers[0].linear
    return mx_norm.gate_residual_ln_modulate_pack(
        x, y, gate, scale, shift, linear.plan,
        columns=_columns(readers), site=linear.mx_site, eps=eps,
    )  # fmt: skip


def _columns(readers: Sequence[Reader]) -> bool:
    weights = (reader.linear.weight for reader in readers)
    return torch.is_grad_enabled() and any(w.requires_grad for w in weights)  # type: ignore[union-attr]
