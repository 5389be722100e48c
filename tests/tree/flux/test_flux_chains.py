# SPDX-License-Identifier: Apache-2.0
"""A whole model with the fused MX chains on, against the same model with them off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flux_gate_keys import CHAINS, KERNELS
from support import ranks

ON = dict.fromkeys(CHAINS, "on")
OFF = dict.fromkeys(KERNELS, "on")
CASES = {
    "bf16": {},
    "mxfp6 off": {"fp6": "e2m3", **OFF},
    "mxfp6 mlp": {"fp6": "e2m3", **OFF, "fused_mlp": "on"},
    "mxfp6 on": {"fp6": "e2m3", **ON},
    "mxfp4 mlp": {"fp4": "e2m1", **OFF, "fused_mlp": "on"},
    "mxfp4 on": {"fp4": "e2m1", **ON},
}
PLACES = ["joint.0.image", "joint.0.text", "single.1"]


def run(function: str, **arguments: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        return ranks.run(f"flux_chains:{function}", 1, timeout=400, **arguments)[0]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return dict(zip(CASES, run("steps", cases=list(CASES.values())), strict=True))


@pytest.mark.parametrize("name", ["mxfp6", "mxfp4"])
def test_prologue_and_pack_keep_every_bit_and_every_gemm(
    results: dict[str, Any], name: str
) -> None:
    off, on = results[f"{name} mlp"], results[f"{name} on"]
    assert on["gemms"] == off["gemms"]
    assert len(on["gemms"]) == 3 * 12
    assert torch.equal(on["output"], off["output"])
    close = {
        key: float((on["grads"][key].float() - grad.float()).norm() / grad.float().norm())
        for key, grad in off["grads"].items()
        if not torch.equal(on["grads"][key], grad)
    }
    # sums over rows are taken in another order; all that a GEMM gave is bit-equal
    assert all(key.endswith(("layernorm.weight", "bias")) for key in close), close
    assert max(close.values(), default=0) < 2**-7


def test_the_fused_mlp_is_no_less_accurate(results: dict[str, Any]) -> None:
    """Against the model without quantization; fc1's bias is added before the one rounding."""
    exact, off, on = (results[name] for name in ("bf16", "mxfp6 off", "mxfp6 mlp"))
    assert on["gemms"] == off["gemms"]

    def errors(found: dict[str, Any]) -> dict[str, float]:
        pairs = {"output": (found["output"], exact["output"])}
        pairs |= {key: (grad, exact["grads"][key]) for key, grad in found["grads"].items()}
        return {
            k: float((a.float() - b.float()).norm() / b.float().norm())
            for k, (a, b) in pairs.items()
        }

    ours, theirs = errors(on), errors(off)
    assert ours["output"] < 1.1 * theirs["output"]
    assert sum(ours.values()) < 1.1 * sum(theirs.values())


@pytest.mark.parametrize("name", ["mxfp6", "mxfp4"])
def test_every_stream_engages_and_packs_once(results: dict[str, Any], name: str) -> None:
    on = results[f"{name} on"]
    engaged = on["engaged"]
    assert [engaged[f"fused_qkv_prologue {place}"] for place in PLACES] == [1, 1, 1]
    assert [engaged[f"fused_mlp {place}"] for place in PLACES] == [1, 1, 1]
    assert [engaged[f"fused_ln_pack {place}"] for place in PLACES] == [2, 2, 1]
    inputs = sum(n for key, n in on["packs"].items() if key[1].startswith("input"))
    off = sum(n for k, n in results[f"{name} mlp"]["packs"].items() if k[1].startswith("input"))
    assert (off, inputs) == (12, 11)  # the single block's norm is packed once for qkv and fc1


@pytest.mark.parametrize("case", [case for case in CASES if case != "bf16"])
def test_evaluation_packs_no_column(results: dict[str, Any], case: str) -> None:
    found = results[case]
    assert {key[1].partition(":")[2] for key in found["evaluation_packs"]} == {"row"}
    assert torch.equal(found["evaluation"], found["output"])
    assert "dual" in {key[1].partition(":")[2] for key in found["packs"]}


def test_pre_hooks_of_every_parameter_run(results: dict[str, Any]) -> None:
    """Megatron's DDP waits in them for gathered parameters; a fused path calls no module."""
    assert results
    assert run("pre_hooks") == []


@pytest.mark.parametrize("gates", [ON, OFF], ids=["chains", "kernels"])
def test_parameters_are_read_after_their_pre_hooks(gates: dict[str, str]) -> None:
    """A kernel that reads a norm's weight before its all-gather ended reads the last step's."""
    expected, found = run("gathered_late", fields=gates)
    assert torch.equal(found, expected)
