# SPDX-License-Identifier: Apache-2.0
"""The TransformerEngine spec: built from TE's modules, equal to the local spec, same keys."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import flux_tiny as tiny
import pytest
import torch
from support import origin

if origin.locate("transformer_engine") is None:
    pytest.skip("transformer_engine is not on PYTHONPATH", allow_module_level=True)

LINEARS = {
    "linear_qkv": "TEColumnParallelLinear",
    "added_linear_qkv": "TEColumnParallelLinear",
    "linear_fc1": "TEColumnParallelLinear",
    "linear_proj": "TERowParallelLinear",
    "added_linear_proj": "TERowParallelLinear",
    "linear_fc2": "TERowParallelLinear",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("te") / "result"
    script = Path(__file__).with_name("flux_te.py")
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(target)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    loaded: dict[str, Any] = pickle.loads(target.read_bytes())
    return loaded


def test_every_quantizable_linear_is_te_and_nothing_else_is(result: dict[str, Any]) -> None:
    classes = result["classes"]
    linears = {name: kind for name, kind in classes.items() if name.split(".")[-1] in LINEARS}
    assert len(linears) == tiny.ARCHITECTURE.num_quantized_linears
    assert all(kind == LINEARS[name.split(".")[-1]] for name, kind in linears.items())
    te_kinds = {kind for kind in classes.values() if kind.startswith("TE")}
    assert te_kinds == {*LINEARS.values(), "TEDotProductAttention"}
    norms = [kind for name, kind in classes.items() if name.endswith("_layernorm")]
    assert norms == ["RMSNorm"] * (2 * 4 + 2 * 2)
    plain = ("img_embed", "txt_embed", "proj_out", "norm_out.adaLN_modulation.1")
    assert {classes[name] for name in plain} == {"PlainLinear"}


def test_shared_config_keeps_its_normalization(result: dict[str, Any]) -> None:
    assert result["normalization"] == "LayerNorm"


def test_attention_backend_reached_te(result: dict[str, Any]) -> None:
    assert result["environment"] == {
        "NVTE_FLASH_ATTN": "0",
        "NVTE_FUSED_ATTN": "0",
        "NVTE_UNFUSED_ATTN": "1",
    }


def test_gemms_went_through_te(result: dict[str, Any]) -> None:
    assert result["calls"]["generic_gemm"] == 3 * tiny.ARCHITECTURE.num_quantized_linears


def test_te_and_local_spec_agree(result: dict[str, Any]) -> None:
    te, local = result["te"], result["local"]
    torch.testing.assert_close(te["output"], local["output"], rtol=1e-4, atol=1e-5)
    for name, grad in local["grads"].items():
        error = (te["grads"][name] - grad).norm() / grad.norm()
        assert error < 1e-5, (name, float(error))


def test_keys_differ_by_extra_state_alone(result: dict[str, Any]) -> None:
    te, local = (
        {key for key in result[spec]["keys"] if not key.endswith("_extra_state")}
        for spec in ("te", "local")
    )
    assert te == local == set(tiny.ARCHITECTURE.parameter_shapes())
