# SPDX-License-Identifier: Apache-2.0
"""Errors of a step name step and ranks; ranks come from torchrun's variables."""

from __future__ import annotations

import pytest
import torch

from mxflux.training.errors import CheckError, ExitCode, NonFiniteError, SetupError
from mxflux.training.process import _leave, ranks_from_environment, started_process


def test_exit_codes_of_the_errors() -> None:
    assert NonFiniteError.exit_code is ExitCode.RUNTIME
    assert CheckError.exit_code is ExitCode.CHECK_FAILED
    assert SetupError.exit_code is ExitCode.USAGE
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3]


def test_without_torchrun_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert ranks_from_environment() == (0, 1, 0)


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(SetupError, match="LOCAL_RANK=''"):
        ranks_from_environment()


def test_te_is_refused_on_the_cpu() -> None:
    settings = {"backend": "gloo", "timeout_minutes": 1}
    with (
        pytest.raises(SetupError, match="does not run on device: cpu"),
        started_process("cpu", transformer_impl="transformer_engine", **settings),
    ):
        pass


def test_a_device_that_torch_does_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with (
        pytest.raises(SetupError, match=r"device: h200, but torch .* sees no accelerator"),
        started_process("h200", transformer_impl="local", backend="nccl", timeout_minutes=1),
    ):
        pass


def test_a_failed_rank_of_an_accelerator_leaves_without_waiting_for_the_others() -> None:
    """On the CPU, and after success, the group is destroyed."""
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    for device, kind, left in ((cuda, ValueError, False), (cuda, None, True), (cpu, OSError, True)):
        if not torch.distributed.is_initialized():
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        _leave(device, kind, None, None)
        assert torch.distributed.is_initialized() is not left


def test_a_fake_world_needs_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(SetupError, match="--fake-world is for one process, torchrun started 2"),
        started_process(
            "cpu", transformer_impl="local", backend="gloo", timeout_minutes=1, fake_world=8
        ),
    ):
        pass
