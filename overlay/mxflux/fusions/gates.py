# SPDX-License-Identifier: Apache-2.0
"""Gates of fused paths: off | on | auto, checked at build and run time, engagement proven.

A gate that is on and cannot engage raises with the reason; one that is auto declines, and the
decline is counted under its reason; every use is counted, so that the run report shows per block
what really ran. Needs neither torch nor triton to import.

    gates = FusionGates({"fused_qk_norm_rope": "on", "fused_ln_modulate": "auto"})
    gate = gates.build("fused_qk_norm_rope", "joint.0.image", reason_or_none)     # at module build
    if gate.engages(norm_rope_qkv.problem, mixed, q_weight, k_weight, cos_sin):   # every step
        ...fused...
"""

from __future__ import annotations

import enum
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class GateMode(enum.Enum):
    """What a configuration asks of a fused path."""

    OFF = "off"
    ON = "on"
    AUTO = "auto"

    @classmethod
    def from_name(cls, value: object, key: str) -> GateMode:
        """The mode that a configuration value names; ValueError names the key, the value and the
        choices.

        YAML reads a bare `on` or `off` as a boolean, so True and False are accepted as what was
        written.
        """
        if isinstance(value, GateMode):
            return value
        if isinstance(value, bool):
            return cls.ON if value else cls.OFF
        for mode in cls:
            if value == mode.value:
                return mode
        raise ValueError(f"{key}: got {value!r}, expected one of off, on, auto")


class FusionUnavailableError(ValueError):
    """A fused path was switched on and cannot run; names gate, place and reason."""


@dataclass
class Gate:
    """One fused path in one place (a block, a stream). Use `FusionGates.build` to make one."""

    key: str
    place: str
    mode: GateMode
    build_reason: str | None
    engaged: int = 0
    traced: int = 0
    declined: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Gate:
        """The gate itself: a copied module keeps counting where the report looks."""
        return self

    def engages(self, check: Callable[..., str | None], *args: Any) -> bool:
        """Whether this use takes the fused path; `check(*args)` gives a reason against it, or None.

        on: True, or FusionUnavailableError with the reason. auto: False is counted under its
        reason. off: False and the check is not called. While torch.compile traces, the decision is
        made once for the graph and nothing is counted, since a counter inside a compiled region
        would force a recompilation every step: whoever compiles calls count_traced().
        """
        if self.mode is GateMode.OFF:
            return False
        reason = self.build_reason if self.build_reason is not None else check(*args)
        if reason is not None and self.mode is GateMode.ON:
            raise FusionUnavailableError(f"{self.key}=on in {self.place} cannot engage: {reason}")
        if not _compiling():
            self._count(reason)
        return reason is None

    def count_traced(self) -> None:
        """Record that a compiled graph contains this fused path; call it outside the traced
        region.
        """
        with self._lock:
            self.traced += 1

    def _count(self, reason: str | None) -> None:
        with self._lock:
            if reason is None:
                self.engaged += 1
            else:
                self.declined[reason] += 1


@dataclass(frozen=True)
class GateReport:
    """What one gate did: plain numbers for a run report."""

    key: str
    place: str
    mode: str
    engaged: int
    traced: int
    declined: dict[str, int]


class FusionGates:
    """The gates of one model: modes from its configuration, one Gate for every place that has the
    path.
    """

    def __init__(self, modes: Mapping[str, object]) -> None:
        """modes: configuration key -> off, on, auto; ValueError for any other value."""
        self._modes = {key: GateMode.from_name(value, key) for key, value in modes.items()}
        self._gates: dict[tuple[str, str], Gate] = {}

    def build(self, key: str, place: str, *reasons: str | None) -> Gate:
        """The gate of `key` in `place`. reasons: what the module's configuration has against the
        path.

        Raises FusionUnavailableError at once when the gate is on and a reason stands; KeyError for
        a key that the configuration does not have; ValueError when the place already has this gate.
        """
        if key not in self._modes:
            raise KeyError(f"fusion gate {key!r}: got no mode, have {sorted(self._modes)}")
        if (key, place) in self._gates:
            raise ValueError(f"{key}: {place} built twice")
        standing = "; ".join(reason for reason in reasons if reason is not None) or None
        mode = self._modes[key]
        if mode is GateMode.ON and standing is not None:
            raise FusionUnavailableError(f"{key}=on in {place} cannot engage: {standing}")
        gate = Gate(key, place, mode, standing)
        self._gates[key, place] = gate
        return gate

    def gates(self) -> tuple[Gate, ...]:
        """Every gate, in the order they were built."""
        return tuple(self._gates.values())

    def report(self) -> list[GateReport]:
        """Every gate's counts, in the order they were built."""
        return [
            GateReport(g.key, g.place, g.mode.value, g.engaged, g.traced, dict(g.declined))
            for g in self._gates.values()
        ]

    def require_engaged(self) -> None:
        """Raise unless every gate that is on has engaged since the last reset; call it after the
        first step.

        This is what catches a fused path that nobody reached: a missing call, a bypassed block.
        """
        idle = [
            f"{gate.key} in {gate.place}"
            for gate in self._gates.values()
            if gate.mode is GateMode.ON and gate.engaged == 0 and gate.traced == 0
        ]
        unbuilt = [
            f"{key} in no module"
            for key, mode in self._modes.items()
            if mode is GateMode.ON and not any(built == key for built, _ in self._gates)
        ]
        if idle or unbuilt:
            raise FusionUnavailableError(
                "switched on but never engaged: " + "; ".join(idle + unbuilt)
            )

    def reset(self) -> None:
        """Zero all counters."""
        for gate in self._gates.values():
            with gate._lock:
                gate.engaged = gate.traced = 0
                gate.declined.clear()


def _compiling() -> bool:
    import torch  # a lookup in sys.modules is not traceable in torch 2.11

    return bool(torch.compiler.is_compiling())
