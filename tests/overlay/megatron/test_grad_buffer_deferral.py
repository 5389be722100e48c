# SPDX-License-Identifier: Apache-2.0
"""The deferral's own rules, on a hand-made buffer; tests/tree proves them on real DDP."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mxflux.megatron.grad_buffer import GradBufferDeferral, check_ddp_config

CONFIG = {
    "use_megatron_fsdp": False,
    "use_custom_fsdp": False,
    "reuse_grad_buf_for_mxfp8_param_ag": False,
    "overlap_param_gather": False,
    "use_distributed_optimizer": True,
}


class Buffer:
    """A grad buffer of two parameters at 2..5 and 8..10, with padding around them."""

    def __init__(self) -> None:
        self.numel = 12
        self.grad_data = torch.zeros(self.numel)
        self.params: list[Any] = [torch.nn.Parameter(torch.zeros(n)) for n in (3, 2)]
        spans = [(2, 5, 0), (8, 10, 0)]
        self.param_index_map = dict(zip(self.params, spans, strict=True))
        for param, (start, end, _) in self.param_index_map.items():
            param.main_grad = self.grad_data[start:end]
            param.grad_added_to_main_grad = False

    def reset(self) -> None:
        """The fill."""
        self.grad_data.zero_()


class Ddp:
    """What the deferral reads of DistributedDataParallel, around one Buffer."""

    def __init__(self, **config: Any) -> None:
        self.buffer = Buffer()
        self.buffers, self.expert_parallel_buffers = [self.buffer], []
        self.config = SimpleNamespace(**config)
        self.ddp_config = SimpleNamespace(**CONFIG)
        self.dp_cp_group = SimpleNamespace(rank=lambda: 0)
        self.module = torch.nn.Module()
        for index, param in enumerate(self.buffer.params):
            self.module.register_parameter(f"p{index}", param)
        bucket = SimpleNamespace(params_list=self.buffer.params)
        self.group: Any = SimpleNamespace(buckets=[bucket])
        self.bucket_groups, self.expert_parallel_bucket_groups = [self.group], []

    def accumulate(self, index: int, *values: float) -> None:
        """The backward hook of a parameter."""
        param = self.buffer.params[index]
        param.grad = torch.tensor(values, dtype=torch.float32)
        self.group.grad_buffer_deferral.accumulate(param)
        param.grad = None

    def reduce(self) -> list[float]:
        """The choke point before a reduction; returns the whole buffer."""
        self.group.grad_buffer_deferral.before_reduce(self.group)
        return self.buffer.grad_data.tolist()


def learnt() -> tuple[Ddp, GradBufferDeferral]:
    """After one iteration in which the hook wrote both parameters."""
    ddp = Ddp()
    deferral = GradBufferDeferral(ddp)
    deferral.reset()
    ddp.accumulate(0, 1, 2, 3)
    ddp.accumulate(1, 4, 5)
    ddp.reduce()
    return ddp, deferral


def test_reset_leaves_the_gradients_and_clears_the_padding() -> None:
    """That is the saving; padding is the part that nobody overwrites."""
    ddp, deferral = learnt()
    ddp.buffer.grad_data[[0, 1, 5, 6, 7, 10, 11]] = float("nan")
    deferral.reset()
    assert ddp.buffer.grad_data.tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 0, 0]


def test_first_overwrites_then_adds() -> None:
    """Two microbatches; the parameter without a gradient is zero when it is reduced."""
    ddp, deferral = learnt()
    deferral.reset()
    ddp.accumulate(0, 10, 20, 30)
    ddp.accumulate(0, 1, 1, 1)
    assert ddp.reduce() == [0, 0, 11, 21, 31, 0, 0, 0, 0, 0, 0, 0]


def test_negative_zero() -> None:
    """The zero fill turns -0.0 into 0.0, so overwriting must."""
    ddp, deferral = learnt()
    deferral.reset()
    ddp.accumulate(0, -0.0, -1, 0)
    assert not torch.signbit(ddp.buffer.params[0].main_grad[0])


def test_gradient_of_lower_precision() -> None:
    """A bf16 gradient overwrites an fp32 slice without a temporary's rounding."""
    ddp, deferral = learnt()
    deferral.reset()
    param = ddp.buffer.params[0]
    param.grad_dtype = None  # lets torch hold a gradient of another dtype
    param.grad = torch.tensor([0.1, -0.2, 3], dtype=torch.bfloat16)
    deferral.accumulate(param)
    assert torch.equal(param.main_grad, param.grad.float())


def test_kernel_written_parameter_is_filled() -> None:
    """The flag at the reduction is enough to learn from."""
    fresh = Ddp()
    deferral = GradBufferDeferral(fresh)
    deferral.reset()
    fresh.accumulate(0, 1, 2, 3)
    fresh.buffer.params[1].main_grad += 4
    fresh.buffer.params[1].grad_added_to_main_grad = True
    assert fresh.reduce()[8:10] == [4, 4]
    deferral.reset()
    assert fresh.buffer.grad_data[8:10].tolist() == [0, 0]
    assert fresh.buffer.grad_data[2:5].tolist() == [1, 2, 3]


@pytest.mark.parametrize("when", ["in the hook", "at the reduction"])
def test_kernel_on_a_stale_slice(when: str) -> None:
    """It has already added to an old gradient: an error with the parameter's name."""
    ddp, deferral = learnt()
    deferral.reset()
    ddp.buffer.params[1].grad_added_to_main_grad = True
    with pytest.raises(RuntimeError, match="stale main_grad of p1"):
        ddp.accumulate(1, 0, 0) if when == "in the hook" else ddp.reduce()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"use_megatron_fsdp": True}, "FSDP"),
        ({"use_custom_fsdp": True}, "FSDP"),
        ({"reshard_after_forward": True}, "FSDP"),
        ({"reuse_grad_buf_for_mxfp8_param_ag": True}, "reuse_grad_buf_for_mxfp8_param_ag"),
    ],
)
def test_config_is_refused(changes: dict[str, bool], problem: str) -> None:
    """All problems at once, each by the name of the setting."""
    check_ddp_config(SimpleNamespace(**CONFIG))
    with pytest.raises(ValueError, match=f"^defer_grad_buffer_zero: .*{problem}"):
        check_ddp_config(SimpleNamespace(**{**CONFIG, **changes}))


def test_shared_buffer_is_refused() -> None:
    """MXFP8 parameters live in it, whatever reuse_grad_buf_for_mxfp8_param_ag says."""
    ddp = Ddp(cuda_graph_impl="local")
    ddp.buffer.shared_buffer = ddp.buffer.grad_data
    with pytest.raises(ValueError, match=r"cuda_graph_impl=local .*; MXFP8 parameters share"):
        GradBufferDeferral(ddp)
