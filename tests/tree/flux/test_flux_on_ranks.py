# SPDX-License-Identifier: Apache-2.0
"""What needs Megatron's generators and buffers on the CPU, and what needs two ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import ranks

if TYPE_CHECKING:
    from torch import Tensor

RECOMPUTE: dict[str, tuple[dict[str, Any], int]] = {
    "selective": ({"recompute_granularity": "selective"}, 8),
    "block": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 3},
        7,
    ),
    "uniform": (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 3},
        8,
    ),
}
BACKENDS = ("local", "unfused", "flash")


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {"plain": {}}
    cases |= {name: fields for name, (fields, _) in RECOMPUTE.items()}
    cases |= {backend: {"attention_backend": backend} for backend in BACKENDS}
    out = ranks.run("flux_ranks:each_gradients", 1, cases=list(cases.values()))[0]
    return dict(zip(cases, out, strict=True))


def worst(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[name] - b[name]).norm() / b[name].norm()) for name in b)


@pytest.mark.parametrize("method", RECOMPUTE)
def test_recomputation_gives_the_same_gradients(
    results: dict[str, dict[str, Any]], method: str
) -> None:
    plain, again = results["plain"], results[method]
    assert plain["calls"] == 4
    assert again["calls"] == RECOMPUTE[method][1]
    assert torch.equal(again["output"], plain["output"])
    # Not bit-equal: shared inputs sum their gradients in another order.
    assert worst(again["grads"], plain["grads"]) < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_local_attention_backends_agree(results: dict[str, dict[str, Any]], backend: str) -> None:
    assert worst(results[backend]["grads"], results["plain"]["grads"]) < 1e-5


@pytest.mark.parametrize("tensor_parallel", [2])
def test_tensor_parallel_model_equals_the_whole_one(
    results: dict[str, dict[str, Any]], tensor_parallel: int
) -> None:
    """Outputs on every rank, gradients of shards, of replicas, and of head norms (summed)."""
    plain = results["plain"]
    by_rank = ranks.run(
        "flux_ranks:sharded_gradients", tensor_parallel, tensor_parallel=tensor_parallel
    )
    for result in by_rank:
        torch.testing.assert_close(result["output"], plain["output"], rtol=1e-4, atol=1e-5)
    for name, grad in plain["grads"].items():
        parts = [result["grads"][name] for result in by_rank]
        dim = by_rank[0]["partition"][name]
        if "layernorm" in name:
            whole = torch.stack(parts).sum(0)
        elif dim is None:
            assert all(torch.allclose(part, parts[0], rtol=1e-4, atol=1e-6) for part in parts), name
            whole = parts[0]
        else:
            whole = torch.cat(parts, dim=dim)
        assert worst({name: whole}, {name: grad}) < 1e-5, name
