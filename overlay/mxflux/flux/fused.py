# SPDX-License-Identifier: Apache-2.0
"""The operations of a block behind their fusion gates: fused where one engages, else plain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxflux.fusions.gates import FusionGates, Gate, GateMode

from .norms import gated_residual, layer_norm_modulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from .config import FluxConfig
    from .fused_mx import PackedInput, Reader
    from .rope import RotaryTable

    Readers = Callable[[], Sequence[Reader]]

GATE_FIELDS = (
    "fused_qk_norm_rope",
    "fused_ln_modulate",
    "fused_gate_residual",
    "fused_qkv_prologue",
    "fused_mlp",
    "fused_ln_pack",
)
"""Config keys of the gates. Each is off, on or auto, and off by default."""

QKV = tuple["Tensor", "Tensor", "Tensor"]


@dataclass(frozen=True)
class Implementation:
    """A fused operation, and what speaks against it: tensors at run time, a config at build."""

    function: Callable[..., Any]
    problem: Callable[..., str | None]
    refusal: Callable[[FluxConfig], str | None] = lambda _: None


_registered: dict[str, Implementation] = {}


def register_fusion(key: str, implementation: Implementation) -> None:
    """Name what serves a gate.

    fused_qkv_prologue: function(hidden, linear_qkv, q_weight, k_weight, RotaryTable, *, heads,
    eps) -> q, k, v. fused_mlp: function(Megatron MLP, x) -> output, bias still to add. ``problem``
    takes the same positional arguments. Raises ValueError for a key that is no gate.
    """
    if key not in GATE_FIELDS:
        raise ValueError(f"{key!r} is no fusion gate. Choose from: {', '.join(GATE_FIELDS)}.")
    _registered[key] = implementation


def fusion_gates(config: FluxConfig) -> FusionGates:
    """The gates of one model, with the modes that its config asks for."""
    return FusionGates({key: getattr(config, key) for key in GATE_FIELDS})


class BlockOps:
    """The operations of one stream of one block, each behind its gate.

    Raises FusionUnavailable (a ValueError) at build when a gate is "on" and cannot be served.
    """

    def __init__(
        self, config: FluxConfig, gates: FusionGates, place: str, keys: tuple[str, ...]
    ) -> None:
        self.eps = config.layernorm_epsilon
        self._served: dict[str, tuple[Gate, Implementation]] = {}
        for key in keys:
            if GateMode.from_name(getattr(config, key), key) is GateMode.OFF:
                continue
            found = _registered.get(key) or _builtin(key)
            reason = found.refusal(config) if found else "no implementation is registered"
            gate = gates.build(key, place, reason)
            if found is not None:
                self._served[key] = (gate, found)

    def _engaged(self, key: str, *arguments: Any) -> Callable[..., Any] | None:
        """The fused function when its gate engages for these arguments."""
        served = self._served.get(key)
        if served is None or not served[0].engages(served[1].problem, *arguments):
            return None
        return served[1].function

    def declines(self, key: str, *arguments: Any) -> str | None:
        """Why a fused path would not run with these arguments; nothing is counted or raised."""
        served = self._served.get(key)
        if served is None:
            return f"{key} is off or not served here"
        gate, found = served
        return gate.build_reason or found.problem(*arguments)

    def ln_modulate(
        self, x: Tensor, shift: Tensor, scale: Tensor, readers: Readers | None = None
    ) -> Tensor | PackedInput:
        """LayerNorm(x) * (1 + scale) + shift; x [S,B,H], shift and scale [B,H].

        readers: all that reads the result; where every one takes a packed input, it is packed.
        """
        if readers is not None and "fused_ln_pack" in self._served:
            read_by = readers()
            packed = self._engaged("fused_ln_pack", x, scale, shift, read_by)
            if packed is not None:
                self._engaged("fused_ln_modulate", x, scale, shift)  # its kernels run: count it
                result: PackedInput = packed(x, scale, shift, read_by, eps=self.eps)
                return result
        fused = self._engaged("fused_ln_modulate", x, scale, shift)
        if fused is None:
            return layer_norm_modulate(x, shift, scale, self.eps)
        out: Tensor = fused(x, scale, shift, eps=self.eps)
        return out

    def residual_ln_modulate(
        self, x: Tensor, gate: Tensor, y: Tensor, shift: Tensor, scale: Tensor,
        readers: Readers | None = None,
    ) -> tuple[Tensor, Tensor | PackedInput]:  # fmt: skip
        """h = x + gate*y and LayerNorm(h) * (1 + scale) + shift; readers: as of `ln_modulate`."""
        fused = self._engaged("fused_gate_residual", x, y, gate, scale, shift)
        if fused is None:
            h = gated_residual(x, gate, y)
            return h, self.ln_modulate(h, shift, scale, readers)
        if readers is not None and "fused_ln_pack" in self._served:
            read_by = readers()
            if self._engaged("fused_ln_pack", x, scale, shift, read_by) is not None:
                from .fused_mx import gated_ln_pack

                return gated_ln_pack(x, y, gate, scale, shift, read_by, eps=self.eps)
        h, out = fused(x, y, gate, scale, shift, eps=self.eps)
        return h, out

    def qk_norm_rope(
        self, mixed_qkv: Tensor, q_weight: Tensor, k_weight: Tensor, table: RotaryTable
    ) -> QKV | None:
        """q, k, v of mixed_qkv [S,B,heads,3*D], or None where the plain path has to run."""
        if "fused_qk_norm_rope" not in self._served:
            return None
        arguments = (mixed_qkv, q_weight, k_weight)
        fused = self._engaged("fused_qk_norm_rope", *arguments, table.fused.cos_sin)
        if fused is None:
            return None
        q, k, v = fused(*arguments, table.fused, eps=self.eps)
        return q, k, v

    def qkv_prologue(
        self, hidden: Tensor | PackedInput, linear_qkv: nn.Module, q_weight: Tensor,
        k_weight: Tensor, table: RotaryTable, *, heads: int,
    ) -> QKV | None:  # fmt: skip
        """q, k, v straight from the block's input, or None where the plain path has to run."""
        arguments = (hidden, linear_qkv, q_weight, k_weight, table)
        fused = self._engaged("fused_qkv_prologue", *arguments)
        if fused is None:
            return None
        q, k, v = fused(*arguments, heads=heads, eps=self.eps)
        return q, k, v

    def mlp(self, mlp: nn.Module, x: Tensor | PackedInput) -> tuple[Tensor, Tensor | None]:
        """Output of Megatron's MLP and its second bias, not yet added."""
        fused = self._engaged("fused_mlp", mlp, x)
        out, bias = mlp(x) if fused is None else fused(mlp, x)
        return out, bias


ATTENTION_GATES = ("fused_qk_norm_rope", "fused_qkv_prologue")
JOINT_GATES = ("fused_ln_modulate", "fused_gate_residual", "fused_mlp", "fused_ln_pack")
SINGLE_GATES = ("fused_ln_modulate", "fused_mlp", "fused_ln_pack")
HEAD_GATES = ("fused_ln_modulate",)


def _builtin(key: str) -> Implementation | None:
    """The kernels of mxflux.fusions, imported only for a gate that is not off."""
    if key == "fused_qk_norm_rope":
        from mxflux.fusions import norm_rope_qkv

        return Implementation(norm_rope_qkv.norm_rope_qkv, norm_rope_qkv.problem)
    if key == "fused_ln_modulate":
        from mxflux.fusions import ln_modulate

        return Implementation(ln_modulate.ln_modulate, ln_modulate.problem)
    if key == "fused_gate_residual":
        from mxflux.fusions import gate_residual

        return Implementation(gate_residual.gate_residual_ln_modulate, gate_residual.problem)
    if key in ("fused_qkv_prologue", "fused_mlp", "fused_ln_pack"):
        return _chain(key)
    return None


def _chain(key: str) -> Implementation:
    from . import fused_mx

    if key == "fused_qkv_prologue":
        return Implementation(fused_mx.qkv_prologue, fused_mx.qkv_problem, fused_mx.refusal)
    if key == "fused_mlp":
        return Implementation(fused_mx.mlp, fused_mx.mlp_problem, fused_mx.mlp_refusal)
    return Implementation(fused_mx.ln_pack, fused_mx.pack_problem, fused_mx.pack_refusal)


def announce(*modules: nn.Module) -> None:
    """Run the forward pre-hooks of modules whose parameters are read without calling them.

    Megatron's DDP waits there for the all-gather of parameters (overlap_param_gather).
    """
    for module in modules:
        for hook in module._forward_pre_hooks.values():
            hook(module, ())
