# SPDX-License-Identifier: Apache-2.0
"""What a resumed run was built with is in effect, whatever the checkpoint was saved with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from mxflux.checkpoint.hyperparameters import (
    adopt_ranges,
    group_values,
    reapply_group_values,
    resume_schedule,
)


def adam(**options: Any) -> torch.optim.Adam:
    return torch.optim.Adam([torch.nn.Parameter(torch.zeros(2))], **options)


def test_groups_keep_the_constants_of_this_run() -> None:
    saved = adam(lr=1e-3, betas=(0.9, 0.99), eps=1e-6).state_dict()
    optimizer = adam(lr=2e-3, betas=(0.8, 0.99))
    own = group_values(optimizer)
    optimizer.load_state_dict(saved)
    notes = reapply_group_values(optimizer, own, scheduled=True)
    group = optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.99), 1e-8, 1e-3)
    assert notes == [
        "optimizer betas: (0.8, 0.99) of this run, not (0.9, 0.99) as saved",
        "optimizer eps: 1e-08 of this run, not 1e-06 as saved",
    ]
    assert reapply_group_values(optimizer, own, scheduled=False) == [
        "optimizer lr: 0.002 of this run, not 0.001 as saved"
    ]
    assert group["lr"] == 2e-3
    assert reapply_group_values(optimizer, own, scheduled=False) == []


class Schedule:
    """One with Megatron's way of counting, or another."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = dict(state_dict)


def test_a_schedule_continues_in_its_own_terms() -> None:
    schedule = Schedule(max_lr=1.0, num_steps=0)
    notes = resume_schedule(schedule, {"max_lr": 2.0, "num_steps": 7, "old": 1})
    assert schedule.state == {"max_lr": 1.0, "num_steps": 7}
    assert notes == [
        "schedule max_lr: 1.0 of this run, not 2.0 as saved",
        "schedule old: None of this run, not 1 as saved",
    ]


def test_a_schedule_that_counts_otherwise_gets_its_state() -> None:
    schedule = Schedule(last_epoch=0)
    assert resume_schedule(schedule, {"last_epoch": 3}) == []
    assert schedule.state == {"last_epoch": 3}


def group(wd_mult: float, **values: Any) -> dict[str, Any]:
    """One parameter group as Megatron 0.19 has it."""
    return {"wd_mult": wd_mult, "lr_mult": 1.0, "is_expert_parallel": False, **values}


def test_saved_groups_are_found_under_another_learning_rate() -> None:
    own = SimpleNamespace(param_groups=[group(1.0, max_lr=0.1), group(0.0, max_lr=0.1, min_lr=0.0)])
    saved = [group(0.0, max_lr=0.2, end_wd=0.3), group(1.0, max_lr=0.1)]
    notes = adopt_ranges(own, {"optimizer": {"param_groups": saved}})
    assert saved == [group(0.0, max_lr=0.1, min_lr=0.0), group(1.0, max_lr=0.1)]
    assert notes == [
        "optimizer max_lr: 0.1 of this run, not 0.2 as saved",
        "optimizer min_lr: 0.0 of this run, not None as saved",
        "optimizer end_wd: None of this run, not 0.3 as saved",
    ]


def test_groups_that_differ_in_the_learning_rate_alone_stay_as_they_are() -> None:
    own = SimpleNamespace(param_groups=[group(1.0, max_lr=0.1), group(1.0, max_lr=0.3)])
    saved = [group(1.0, max_lr=0.1), group(1.0, max_lr=0.4)]
    assert adopt_ranges(own, {"param_groups": saved}) == []
    assert saved == [group(1.0, max_lr=0.1), group(1.0, max_lr=0.4)]
