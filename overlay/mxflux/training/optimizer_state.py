# SPDX-License-Identifier: Apache-2.0
"""Adam state that exists before the first step, which loading a checkpoint needs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from .chained import single_optimizers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron.core.optimizer import MegatronOptimizer


def allocate_adam_state(optimizer: MegatronOptimizer) -> int:
    """Allocate exp_avg, exp_avg_sq and step where torch's Adam has none yet; returns how many.

    torch.optim.Adam allocates at its first step, and Megatron's distributed optimizer asserts
    when it is asked for its sharded state before. Fused Adams keep the step in the group and
    need nothing; only a CPU run uses torch's.
    """
    allocated = 0
    for adam in _torch_adams(optimizer):
        for parameter in (p for group in adam.param_groups for p in group["params"]):
            if adam.state[parameter]:
                continue
            adam.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            allocated += 1
    return allocated


@torch.no_grad()
def load_optimizer_state(optimizer: MegatronOptimizer, state: dict[str, Any]) -> None:
    """Load a sharded state so that training continues bit-identically.

    With fp32 parameters the main parameters are views of leaves, hence no_grad. Megatron 0.18
    stores the step in torch Adam's groups, but restores it into one tensor that all parameters
    share and then overwrites: each gets its own, from its group.
    Raises KeyError when a group came without its step.
    """
    with contextlib.ExitStack() as stack:
        for inner in _distributed_torch_adams(optimizer):
            stack.enter_context(_step_is_no_shard(inner))
        optimizer.load_state_dict(state)
    for adam in _torch_adams(optimizer):
        for group in adam.param_groups:
            for parameter in group["params"]:
                adam.state[parameter]["step"] = torch.tensor(float(group["step"]))


@contextlib.contextmanager
def _step_is_no_shard(optimizer: Any) -> Iterator[None]:
    """Let a fully_reshardable state load into torch's Adam.

    Megatron (0.16 to 0.19) copies every tensor of the Adam state from the checkpoint, where torch
    Adam's `step` is in the groups and not beside the shards: KeyError 'step' otherwise.
    """
    copy = optimizer._set_main_param_and_optimizer_states

    def copy_but_step(model_param: torch.Tensor, tensors: dict[str, Any]) -> None:
        group, index = optimizer.model_param_group_index_map[model_param]
        main_param = optimizer.optimizer.param_groups[group]["params"][index]
        copy(model_param, {"step": optimizer.optimizer.state[main_param]["step"], **tensors})

    optimizer._set_main_param_and_optimizer_states = copy_but_step
    try:
        yield
    finally:
        del optimizer._set_main_param_and_optimizer_states


def _distributed_torch_adams(optimizer: MegatronOptimizer) -> Iterator[Any]:
    for inner in single_optimizers(optimizer):
        torch_adam = isinstance(inner.optimizer, torch.optim.Adam | torch.optim.AdamW)
        if torch_adam and hasattr(inner, "model_param_group_index_map"):
            yield inner


def _torch_adams(optimizer: MegatronOptimizer) -> Iterator[torch.optim.Optimizer]:
    for inner in single_optimizers(optimizer):
        if isinstance(inner.optimizer, torch.optim.Adam | torch.optim.AdamW):
            yield inner.optimizer
