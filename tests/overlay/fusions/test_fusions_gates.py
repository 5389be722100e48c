# SPDX-License-Identifier: Apache-2.0
"""Gates: modes, reasons at build and run time, counters, proof that `on` was reached."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import fusions_support as support
import pytest
import torch

from mxflux.fusions import norm_rope_qkv
from mxflux.fusions.gates import FusionGates, FusionUnavailableError, GateMode

KEY = "fused_qk_norm_rope"


def fine() -> None:
    return None


def bad() -> str:
    return "D: got 40, expected a multiple of 16 up to 256"


@pytest.mark.parametrize(
    ("value", "mode"),
    [("off", "OFF"), ("on", "ON"), ("auto", "AUTO"), (True, "ON"), (False, "OFF")],
)
def test_modes(value: object, mode: str) -> None:
    assert GateMode.from_name(value, KEY) is GateMode[mode]


@pytest.mark.parametrize("value", ["On", "true", "", None, 1])
def test_unknown_mode_names_key_value_and_choices(value: object) -> None:
    with pytest.raises(ValueError, match=f"{KEY}: got .*, expected one of off, on, auto"):
        FusionGates({KEY: value})


def test_on_engages_and_is_counted_per_place() -> None:
    gates = FusionGates({KEY: "on"})
    image, text = gates.build(KEY, "joint.0.image"), gates.build(KEY, "joint.0.text")
    assert image.engages(fine)
    assert image.engages(fine)
    assert text.engages(fine)
    assert [(r.place, r.engaged) for r in gates.report()] == [
        ("joint.0.image", 2),
        ("joint.0.text", 1),
    ]


def test_on_that_cannot_engage_raises_at_build_and_at_run_time() -> None:
    gates = FusionGates({KEY: "on"})
    with pytest.raises(
        FusionUnavailableError, match=r"=on in single\.3 cannot engage: rotary_interleaved is False"
    ):
        gates.build(KEY, "single.3", None, "rotary_interleaved is False")
    with pytest.raises(
        FusionUnavailableError, match=r"=on in single\.4 cannot engage: D: got 40, expected"
    ):
        gates.build(KEY, "single.4").engages(bad)


def test_auto_declines_and_counts_the_reason() -> None:
    gates = FusionGates({KEY: "auto"})
    runtime, build = gates.build(KEY, "a"), gates.build(KEY, "b", "qk norm is off")
    assert not runtime.engages(bad)
    assert runtime.engages(fine)
    assert not build.engages(fine)
    first, second = gates.report()
    assert (first.engaged, first.declined) == (1, {bad(): 1})
    assert (second.engaged, second.declined) == (0, {"qk norm is off": 1})


def test_off_never_calls_the_check_and_counts_nothing() -> None:
    gate = FusionGates({KEY: "off"}).build(KEY, "a", "whatever")

    def explode() -> None:
        raise AssertionError("called")

    assert not gate.engages(explode)
    assert (gate.engaged, sum(gate.declined.values())) == (0, 0)


def test_unreached_gates_are_found() -> None:
    gates = FusionGates({KEY: "on", "fused_ln_modulate": "auto"})
    with pytest.raises(FusionUnavailableError, match=f"{KEY} in no module"):
        gates.require_engaged()
    gate = gates.build(KEY, "single.0")
    with pytest.raises(FusionUnavailableError, match=f"never engaged: {KEY} in single.0"):
        gates.require_engaged()
    gate.engages(fine)
    gates.require_engaged()
    gates.reset()
    with pytest.raises(FusionUnavailableError):
        gates.require_engaged()
    gate.count_traced()
    gates.require_engaged()


def test_unknown_key_and_double_build() -> None:
    gates = FusionGates({KEY: "auto"})
    with pytest.raises(KeyError, match="fused_everything"):
        gates.build("fused_everything", "a")
    gates.build(KEY, "a")
    with pytest.raises(ValueError, match="built twice"):
        gates.build(KEY, "a")


def test_a_copied_module_counts_where_the_report_looks() -> None:
    gates = FusionGates({KEY: "on"})
    module = torch.nn.Module()
    module.gate = gates.build(KEY, "a")
    copy.deepcopy(module).gate.engages(fine)
    assert gates.report()[0].engaged == 1


def test_counts_are_exact_across_threads() -> None:
    gate = FusionGates({KEY: "on"}).build(KEY, "a")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: gate.engages(fine), range(2000)))
    assert gate.engaged == 2000


def test_the_reason_of_an_op_reaches_the_gate() -> None:
    gates = FusionGates({KEY: "auto"})
    gate = gates.build(KEY, "a")
    weight = torch.ones(32, dtype=support.BF16)
    table = support.table(2, 1, 32).cos_sin
    good = (support.values("random", 2, 1, 1, 96), weight, weight, table)
    assert gate.engages(norm_rope_qkv.problem, *good)
    assert not gate.engages(norm_rope_qkv.problem, good[0], weight, weight, table[:1])
    assert list(gate.declined) == ["cos_sin shape: got [1, 1, 32], expected [2, 1 or 1, 32]"]


def test_the_decision_is_traceable() -> None:
    gate = FusionGates({KEY: "auto"}).build(KEY, "a")

    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if gate.engages(lambda t: None if t.dim() == 1 else "rank", x) else x - 1

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(2)).tolist() == [1, 1]
    assert gate.engaged == 0


def test_gates_import_without_torch_and_triton() -> None:
    hide = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; "
    code = hide + "import mxflux.fusions.gates"
    done = support.run_python("-c", code)
    assert done.returncode == 0, done.stderr
