# SPDX-License-Identifier: Apache-2.0
"""The model with the real fused kernels, run by Triton's interpreter, against the plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import ranks

if TYPE_CHECKING:
    from torch import Tensor

KEYS = ("fused_qk_norm_rope", "fused_ln_modulate", "fused_gate_residual")
CASES: list[tuple[dict[str, str], str]] = [
    ({}, "float64"),
    ({}, "bfloat16"),
    *(({key: "on"}, "float32") for key in KEYS),
    (dict.fromkeys(KEYS, "on"), "bfloat16"),
]


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        return ranks.run("flux_ranks:each_gated", 1, cases=CASES)[0]


def error(value: Tensor, exact: Tensor) -> float:
    return float((value.double() - exact).norm() / exact.norm())


def values(result: dict[str, Any]) -> dict[str, Tensor]:
    return {"output": result["output"], **result["grads"]}


@pytest.mark.parametrize("case", range(2, 5), ids=KEYS)
def test_each_kernel_agrees_with_the_plain_operations(
    results: list[dict[str, Any]], case: int
) -> None:
    exact, got = values(results[0]), values(results[case])
    worst = max((error(got[name], exact[name]), name) for name in exact)
    assert worst[0] < 1e-5, worst


def test_all_kernels_together_are_no_less_accurate_in_bf16(results: list[dict[str, Any]]) -> None:
    exact, plain, fused = values(results[0]), values(results[1]), values(results[5])
    worse = {
        name: (error(fused[name], exact[name]), error(plain[name], exact[name]))
        for name in exact
        if error(fused[name], exact[name]) > 2 * error(plain[name], exact[name]) + 2**-8
    }
    assert not worse
    assert len(results[5]["engaged"]) == 6 + 7 + 4
    assert all(results[5]["engaged"].values())
