# SPDX-License-Identifier: Apache-2.0
"""defer_grad_buffer_zero: the same bits without the fill, or a reason why not."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from megatron.core.distributed import (
    DistributedDataParallelConfig,
    TorchFullyShardedDataParallelConfig,
)
from support import megatron_config, ranks
from support.grad_buffer_cases import CASES, INSTANCES, Case
from support.grad_buffer_mutants import MUTANTS
from support.megatron_config import CONTAINERS, TRAINING

NO_FIELD = "unexpected keyword argument 'defer_grad_buffer_zero'"
DDP_CONFIG = (
    "megatron.core.distributed.distributed_data_parallel_config.DistributedDataParallelConfig"
)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What two ranks found, in one process each (support/grad_buffer_*.py)."""
    return ranks.run("support.grad_buffer_events:everything", world=2)[0]


# The same bits.


def as_param(case: Case) -> Any:
    """A case, for the releases that have what it needs."""
    local = pytest.mark.upstream("megatron-lm>=0.17", reason="no local fp32 accumulation before")
    return pytest.param(case, marks=[local] if case.local_fp32 else [], id=str(case))


@pytest.mark.control(NO_FIELD)
@pytest.mark.parametrize("case", [as_param(case) for case in [*CASES, *INSTANCES]])
def test_same_bits_as_the_zero_fill(found: dict[str, Any], case: Case) -> None:
    """Buffers, padding and gradients of six iterations, whoever writes them and when."""
    assert found["cases"][str(case)] == ""


def test_padding_is_zero(found: dict[str, Any]) -> None:
    """The comparison above includes padding, which is zero after an inf or NaN got into it."""
    assert found["padding"] == ["padding 0 (zero)", "padding 1 (zero)"]


@pytest.mark.parametrize("mutant", [mutant.__name__ for mutant in MUTANTS])
def test_a_wrong_deferral_is_caught(found: dict[str, Any], mutant: str) -> None:
    """The comparison above can fail: each mistake leaves other bits, or an error, somewhere."""
    outcomes = found["mutants"][mutant]
    assert any(outcomes)
    assert not any("unexpected keyword argument" in outcome for outcome in outcomes)


# What it says.


@pytest.mark.control(NO_FIELD)
@pytest.mark.parametrize(
    ("situation", "message"),
    [
        ("hook only", "INFO defer_grad_buffer_zero: 338 of 338 gradient elements are overwritten"),
        ("nothing seen yet", "INFO defer_grad_buffer_zero: 338 of 338 gradient elements"),
        ("hook and kernel", "WARNING defer_grad_buffer_zero: 169 of 338 gradient elements"),
        ("hook and kernel", "(1 parameters written by kernels, 0 without a gradient so far)"),
    ],
)
def test_effect_is_reported_once(found: dict[str, Any], situation: str, message: str) -> None:
    """After the first iteration with gradients one line says how much is deferred."""
    error, messages = found["events"][situation]
    assert error == ""
    assert len(messages) == 1
    assert message in messages[0]


@pytest.mark.control(NO_FIELD)
def test_kernel_in_a_later_microbatch(found: dict[str, Any]) -> None:
    """A parameter that a kernel starts to write, but not first, is zeroed from then on."""
    error, messages = found["events"]["kernel in a later microbatch"]
    assert error == ""
    assert found["events"]["equal"]
    assert len(messages) == 2
    assert messages[1].startswith("WARNING defer_grad_buffer_zero: second is zeroed from now on")


@pytest.mark.control(NO_FIELD)
def test_kernel_on_a_stale_gradient_is_an_error(found: dict[str, Any]) -> None:
    """It has added to the last iteration's gradient: the parameter is named."""
    error, _ = found["events"]["kernel after hook"]
    assert error.startswith("RuntimeError: defer_grad_buffer_zero: a weight-gradient kernel")
    assert "accumulated into the stale main_grad of second" in error


@pytest.mark.control(NO_FIELD)
def test_no_effect_is_an_error(found: dict[str, Any]) -> None:
    """Where kernels write everything the setting does nothing, so it is refused."""
    error, _ = found["events"]["kernel only"]
    assert error.startswith("RuntimeError: defer_grad_buffer_zero has no effect")


def test_off_needs_no_overlay(found: dict[str, Any]) -> None:
    """Without the setting DDP works where mxflux cannot be imported."""
    assert found["events"]["off, without the overlay"] == ("", [])


# What it refuses.


@pytest.mark.control(NO_FIELD)
@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        ("cuda graphs", "cuda_graph_impl=local replays gradients behind the backward hook"),
        ("embedding wgrad", "defer_embedding_wgrad_compute writes main_grad after"),
        ("layer-wise gather", "the layer-wise optimizer gathers parameters in the grad buffer"),
        ("layer-wise optimizer", "the layer-wise optimizer gathers parameters in the grad buffer"),
    ],
)
def test_unsafe_models_are_refused(found: dict[str, Any], situation: str, reason: str) -> None:
    """At construction, with the setting that is in the way."""
    assert found["events"][situation].startswith(f"ValueError: defer_grad_buffer_zero: {reason}")


@pytest.mark.control(NO_FIELD)
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_megatron_fsdp": True}, "FSDP does not use DDP's grad buffers"),
        ({"use_custom_fsdp": True}, "FSDP does not use DDP's grad buffers"),
        (
            {"reuse_grad_buf_for_mxfp8_param_ag": True, "fp8_param_gather": True},
            "reuse_grad_buf_for_mxfp8_param_ag needs the grad buffer zeroed",
        ),
    ],
)
def test_unsafe_configs_are_refused(settings: dict[str, bool], reason: str) -> None:
    """Before there is a model."""
    with pytest.raises(ValueError, match=reason):
        DistributedDataParallelConfig(**settings, defer_grad_buffer_zero=True)


@pytest.mark.control(NO_FIELD)
def test_torch_fsdp2_is_refused() -> None:
    """Its config class inherits the field."""
    with pytest.raises(ValueError, match="FSDP does not use DDP's grad buffers"):
        TorchFullyShardedDataParallelConfig(defer_grad_buffer_zero=True)


# How it arrives.

COMMAND_LINES = {
    "default": [],
    "deferred": ["--defer-grad-buffer-zero"],
    "fsdp2": [
        *("--defer-grad-buffer-zero", "--use-torch-fsdp2", "--ckpt-format=torch_dist"),
        "--untie-embeddings-and-output-weights",
    ],
}


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    """defer_grad_buffer_zero of the DDP that training builds, or the error, per command line."""
    lines = list(COMMAND_LINES.values())
    (outcomes,) = ranks.run("support.ddp_flags:outcomes", world=1, command_lines=lines)
    return dict(zip(COMMAND_LINES, outcomes, strict=True))


@pytest.mark.control("'DistributedDataParallelConfig' object has no attribute 'defer_grad_buffer")
def test_off_by_default() -> None:
    """Nobody gets the deferral unasked."""
    assert DistributedDataParallelConfig().defer_grad_buffer_zero is False


@TRAINING
@pytest.mark.control("SystemExit: 2|has no attribute 'defer_grad_buffer_zero'")
@pytest.mark.parametrize(("line", "value"), [("default", False), ("deferred", True)])
def test_flag_arrives(built: dict[str, Any], line: str, value: bool) -> None:
    """From the command line, through Megatron's validation, in the config that DDP has."""
    assert built[line] is value


@TRAINING
@pytest.mark.control("SystemExit: 2")
def test_flag_and_fsdp2_are_refused(built: dict[str, Any]) -> None:
    """Upstream drops all of DDP's settings there."""
    assert "FSDP does not use DDP's grad buffers" in built["fsdp2"]


@CONTAINERS
@pytest.mark.control("has no attribute 'defer_grad_buffer_zero'")
def test_container_key_arrives() -> None:
    """From a container file, where upstream drops the keys it does not know."""
    config = megatron_config.from_container(DDP_CONFIG, {"defer_grad_buffer_zero": True})
    assert config.defer_grad_buffer_zero is True


def test_off_config_needs_no_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default config builds where mxflux cannot be imported."""
    monkeypatch.setitem(sys.modules, "mxflux", None)
    monkeypatch.setitem(sys.modules, "mxflux.megatron.grad_buffer", None)
    assert DistributedDataParallelConfig(grad_reduce_in_fp32=True).grad_reduce_in_fp32
