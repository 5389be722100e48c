# SPDX-License-Identifier: Apache-2.0
"""Real models on mxflux's CPU device and gloo: what the patches mean end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import ranks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Outcome per piece, on each of two ranks."""
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    return ranks.run("support.cpu_pieces:pieces", world=2, folder=str(folder))


@pytest.mark.parametrize("sharded", [False, True])
def test_training(found: list[dict[str, Any]], sharded: bool) -> None:
    """Optimizer steps with and without overlap give finite, equal parameters on both ranks."""
    (plain, overlapped, _), (other, _, _) = (rank[f"trained, sharded={sharded}"] for rank in found)
    assert isinstance(plain, torch.Tensor), plain
    assert isinstance(overlapped, torch.Tensor), overlapped
    assert plain.isfinite().all()
    assert torch.equal(plain, overlapped)
    assert torch.equal(plain, other)


def test_sharding_changes_nothing(found: list[dict[str, Any]]) -> None:
    """The distributed optimizer trains as the plain one does."""
    plain, sharded = (found[0][f"trained, sharded={sharded}"][0] for sharded in (False, True))
    torch.testing.assert_close(sharded, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.control("unexpected keyword argument 'defer_grad_buffer_zero'")
@pytest.mark.parametrize("sharded", [False, True])
def test_training_with_deferred_zero(found: list[dict[str, Any]], sharded: bool) -> None:
    """defer_grad_buffer_zero trains to the same bits."""
    for rank in found:
        _, overlapped, deferred = rank[f"trained, sharded={sharded}"]
        assert isinstance(deferred, torch.Tensor), deferred
        assert torch.equal(deferred.view(torch.int32), overlapped.view(torch.int32))


def test_checkpoint(found: list[dict[str, Any]]) -> None:
    """dist_checkpointing writes and reads a model."""
    assert [rank["checkpoint"] for rank in found] == [True, True]


@pytest.mark.control("assert None is not None")
def test_fp4_without_te(found: list[dict[str, Any]]) -> None:
    """A block in FP4 cannot be built without Transformer Engine."""
    error = found[0]["fp4 without te"]
    assert error is not None
    assert error.startswith("RuntimeError: fp4='e2m1' needs Transformer Engine")


@pytest.mark.control("assert None is not None")
def test_string_backend(found: list[dict[str, Any]]) -> None:
    """A language model cannot be built on a str that selects nothing."""
    error = found[0]["string backend"]
    assert error is not None
    assert error.startswith("TypeError: attention_backend is 'fused', which selects nothing")
