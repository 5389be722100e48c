# SPDX-License-Identifier: Apache-2.0
"""Bad input gives a ValueError with argument, got, expected; offsets are 64-bit."""

from __future__ import annotations

import fusions_support as support
import pytest
import torch
from fusions_support import BF16, Tensor

from mxflux.fusions import checks
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope import norm_rope
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
from mxflux.fusions.rope_table import RopeTable

F16, F32, F64, I32 = torch.float16, torch.float32, torch.float64, torch.int32


def zeros(*sizes: int, dtype: torch.dtype = BF16, device: str = "cpu") -> Tensor:
    return torch.zeros(*sizes, dtype=dtype, device=device)


ROPE = {
    "mixed": zeros(4, 2, 3, 96),
    "q_weight": zeros(32),
    "k_weight": zeros(32),
    "cos_sin": zeros(4, 1, 32, dtype=F32),
}
ROPE_CASES = [
    (
        {"mixed": zeros(4, 2, 288)},
        r"mixed shape: got \[4, 2, 288\], expected \[S, B, heads, 3\*D\]",
    ),
    ({"mixed": zeros(4, 2, 3, 97)}, r"mixed shape: got \[4, 2, 3, 97\]"),
    (
        {"mixed": zeros(4, 2, 3, 120)},
        "mixed head dimension: got 40, expected a multiple of 16 up to 256",
    ),
    ({"mixed": zeros(4, 2, 3, 816)}, "mixed head dimension: got 272"),
    ({"mixed": zeros(4, 2, 3, 96, dtype=I32)}, "mixed dtype: got torch.int32, expected one of"),
    ({"q_weight": zeros(16)}, r"q_weight shape: got \[16\], expected \[32\]"),
    (
        {"q_weight": zeros(32, dtype=F16)},
        "q_weight dtype: got torch.float16, expected torch.bfloat16 or torch.float32",
    ),
    (
        {"k_weight": zeros(32, dtype=F32)},
        "k_weight dtype: got torch.float32, expected torch.bfloat16, as q_weight",
    ),
    ({"q_weight": zeros(64)[::2]}, "q_weight stride: got 2, expected 1"),
    ({"k_weight": zeros(32, device="meta")}, "k_weight device: got meta, expected cpu"),
    (
        {"cos_sin": zeros(5, 1, 32, dtype=F32)},
        r"cos_sin shape: got \[5, 1, 32\], expected \[4, 1 or 2, 32\]",
    ),
    ({"cos_sin": zeros(4, 3, 32, dtype=F32)}, r"cos_sin shape: got \[4, 3, 32\]"),
    ({"cos_sin": zeros(4, 1, 64, dtype=F32)}, r"cos_sin shape: got \[4, 1, 64\]"),
    ({"cos_sin": zeros(4, 1, 32)}, "cos_sin dtype: got torch.bfloat16, expected torch.float32"),
    ({"cos_sin": zeros(4, 1, 64, dtype=F32)[..., ::2]}, "cos_sin inner stride: got 2, expected 1"),
]


@pytest.mark.parametrize(("change", "message"), ROPE_CASES)
def test_norm_rope_qkv(change: dict[str, Tensor], message: str) -> None:
    arguments = {**ROPE, **change}
    table = RopeTable(arguments.pop("cos_sin"))
    with pytest.raises(ValueError, match="^norm_rope_qkv: " + message):
        norm_rope_qkv(**arguments, table=table)


def test_norm_rope() -> None:
    table = RopeTable(ROPE["cos_sin"])
    with pytest.raises(
        ValueError, match=r"^norm_rope: x shape: got \[4, 2, 96\], expected \[S, B, heads, D\]"
    ):
        norm_rope(zeros(4, 2, 96), zeros(32), table)
    with pytest.raises(ValueError, match=r"^norm_rope: weight shape: got \[16\], expected \[32\]"):
        norm_rope(zeros(4, 2, 3, 32), zeros(16), table)


LN = {"x": zeros(4, 2, 64), "scale": zeros(2, 64), "shift": zeros(2, 64)}
LN_CASES = [
    ({"x": zeros(8, 64)}, r"x shape: got \[8, 64\], expected \[S, B, H\]"),
    ({"x": zeros(1, 2, 8200)}, "x hidden size: got 8200, expected 1 to 8192"),
    ({"scale": zeros(3, 64)}, r"scale shape: got \[3, 64\], expected \[2, 64\]"),
    ({"shift": zeros(64)}, r"shift shape: got \[64\], expected \[2, 64\]"),
    ({"scale": zeros(2, 64, dtype=F16)}, "scale dtype: got torch.float16"),
    (
        {"shift": zeros(2, 64, dtype=F32)},
        "shift dtype: got torch.float32, expected torch.bfloat16, as scale",
    ),
    ({"x": zeros(4, 2, 64, dtype=F64)}, "scale dtype: got torch.bfloat16, expected torch.float64"),
    ({"shift": zeros(2, 64, device="meta")}, "shift device: got meta, expected cpu"),
]


@pytest.mark.parametrize(("change", "message"), LN_CASES)
def test_ln_modulate(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match="^ln_modulate: " + message):
        ln_modulate(**{**LN, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": zeros(4, 2, 32)}, r"y shape: got \[4, 2, 32\], expected \[4, 2, 64\]"),
        (
            {"y": zeros(4, 2, 64, dtype=F32)},
            "y dtype: got torch.float32, expected torch.bfloat16, as x",
        ),
        ({"gate": zeros(2, 32)}, r"gate shape: got \[2, 32\], expected \[2, 64\]"),
        (
            {"gate": zeros(2, 64, dtype=F32)},
            "scale dtype: got torch.bfloat16, expected torch.float32, as gate",
        ),
    ],
)
def test_gate_residual(change: dict[str, Tensor], message: str) -> None:
    arguments = {**LN, "y": LN["x"], "gate": LN["scale"], **change}
    with pytest.raises(ValueError, match="^gate_residual_ln_modulate: " + message):
        gate_residual_ln_modulate(**arguments)


def test_backward_gradients_are_checked() -> None:
    ops = torch.ops.mxflux
    stats = zeros(8, dtype=F32)
    with pytest.raises(ValueError, match=r"ln_modulate backward: grad dtype: got torch.float32"):
        ops.ln_modulate_backward(zeros(4, 2, 64, dtype=F32), LN["x"], LN["scale"], stats, stats)
    q = zeros(4, 2, 3, 32)
    tail = (
        ROPE["mixed"],
        ROPE["q_weight"],
        ROPE["k_weight"],
        ROPE["cos_sin"],
        zeros(2, 24, dtype=F32),
    )
    with pytest.raises(ValueError, match=r"norm_rope_qkv backward: dk shape: got \[4, 2, 3, 16\]"):
        ops.norm_rope_qkv_backward(q, q[..., :16], q, *tail)


def test_a_cpu_tensor_without_the_interpreter_is_refused() -> None:
    code = (
        "import torch; from mxflux.fusions.ln_modulate import ln_modulate\n"
        "x = torch.zeros(4, 2, 64); s = torch.zeros(2, 64)\n"
        "try: ln_modulate(x, s, s)\n"
        "except ValueError as e: print(e)"
    )
    done = support.run_python("-c", code)
    assert "x device: got cpu, expected cuda; on the CPU set TRITON_INTERPRET=1" in done.stdout, (
        done.stderr
    )


def test_program_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.programs("x", 2**31 - 1, 4) is None
    assert (
        checks.programs("x", 2**31, 4) == "x programs: got 2147483648, expected at most 2147483647"
    )
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert checks.programs("x", 2**24 - 1, 4) is None
    assert checks.programs("x", 2**24, 4) == "x programs: got 16777216, expected at most 16777215"


def test_rows_past_two_gib_are_addressed_in_64_bits() -> None:
    """A batch stride of 2^31 elements on a buffer that shares one page: only a 64-bit offset lands
    inside it.
    """
    storage = torch.zeros(2**16, dtype=BF16)
    storage[:96] = support.values("random", 96)
    near = storage.as_strided((1, 1, 1, 96), (96, 96, 96, 1))
    far = storage.as_strided((1, 1, 1, 96), (2**40, 2**40, 2**40, 1))
    table, weight = support.table(1, 1, 32), torch.ones(32, dtype=BF16)
    want = norm_rope_qkv(near, weight, weight, table)
    assert support.equal(norm_rope_qkv(far, weight, weight, table), want)


def test_more_than_65535_groups_stay_on_axis_0() -> None:
    from mxflux.fusions import norm_rope_qkv as module

    mixed, table = (
        zeros(512, 256, 24, 384, device="meta"),
        zeros(512, 256, 128, dtype=F32, device="meta"),
    )
    plan = module.forward_plan(mixed, table, 1e-6, {"BLOCK_M": 16, "num_warps": 4})
    assert plan.launch.grid == (512 * 256 * 2, 1, 1)
