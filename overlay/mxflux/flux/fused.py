# SPDX-License-Identifier: Apache-2.0
"""Fusion gates: which implementation each block operation uses, decided once, at build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .norms import layer_norm_modulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from .config import FluxConfig
    from .rope import RotaryTable

GATE_FIELDS = ("qk_norm_rope_fusion", "ln_modulate_fusion", "qkv_prologue_fusion", "mlp_fusion")


class QKNormRope(Protocol):
    """mixed_qkv [S,B,heads*3*D] -> q, k, v [S,B,heads,D], q and k normalized and rotated."""

    def __call__(
        self, mixed_qkv: Tensor, q_weight: Tensor, k_weight: Tensor, table: RotaryTable,
        *, heads: int, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip


class QKVPrologue(Protocol):
    """hidden [S,B,H] through linear_qkv, norm and RoPE in one autograd function."""

    def __call__(
        self, hidden: Tensor, linear_qkv: nn.Module, q_weight: Tensor, k_weight: Tensor,
        table: RotaryTable, *, heads: int, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip


@dataclass(frozen=True)
class Implementation:
    """A fused operation and the reason why a config cannot use it (None when it can)."""

    function: Callable[..., Any]
    refusal: Callable[[FluxConfig], str | None]


_implementations: dict[str, Implementation] = {}


def register_fusion(gate: str, implementation: Implementation) -> None:
    """Make ``implementation`` what the gate ``gate`` switches on.

    Raises ValueError for a name that is no gate.
    """
    if gate not in GATE_FIELDS:
        raise ValueError(f"{gate!r} is no fusion gate. Choose from: {', '.join(GATE_FIELDS)}.")
    _implementations[gate] = implementation


@dataclass(frozen=True)
class BlockOps:
    """The operations of a block; None means the unfused path in the block itself."""

    ln_modulate: Callable[..., Tensor] = layer_norm_modulate
    qk_norm_rope: QKNormRope | None = None
    qkv_prologue: QKVPrologue | None = None
    mlp: Callable[[nn.Module, Tensor], tuple[Tensor, Tensor | None]] | None = None
    """Called with Megatron's MLP and its input; returns output and the bias still to add."""
    decisions: dict[str, str] = field(default_factory=dict)
    """Gate -> "off", "on", or "off: <why auto declined>"."""


def resolve_ops(config: FluxConfig) -> BlockOps:
    """Operations for a config's gates.

    Raises ValueError when a gate is "on" and nothing can serve it; "auto" then stays off and
    says why in ``decisions``.
    """
    functions: dict[str, Callable[..., Any]] = {}
    decisions: dict[str, str] = {}
    for gate in GATE_FIELDS:
        decisions[gate] = _decide(gate, config)
        if decisions[gate] == "on":
            functions[gate.removesuffix("_fusion")] = _implementations[gate].function
    return BlockOps(**functions, decisions=decisions)  # type: ignore[arg-type]


def _decide(gate: str, config: FluxConfig) -> str:
    state = getattr(config, gate)
    if state == "off":
        return "off"
    found = _implementations.get(gate)
    reason = "no implementation is registered" if found is None else found.refusal(config)
    if reason is None:
        return "on"
    if state == "on":
        raise ValueError(f"{gate}='on' cannot be served: {reason}. Set it to 'off' or 'auto'.")
    return f"off: {reason}"
