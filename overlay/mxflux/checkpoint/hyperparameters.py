# SPDX-License-Identifier: Apache-2.0
"""On resume, the learning rate, decay and Adam constants of this run are in effect, not the saved.

torch's and Megatron's load_state_dict take them over from the checkpoint without a word: a recipe
that asks for another learning rate would go on with the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .parts import Resumable

_POSITION = "num_steps"
"""How far Megatron's OptimizerParamScheduler has come; all else in its state is the recipe's."""
_PROGRESS = frozenset({"params", "step"})
_SCHEDULED = frozenset({"lr", "weight_decay"})

Groups = list[dict[str, Any]]


def group_values(optimizer: Any) -> Groups:
    """Every parameter group without its parameters and its progress."""
    return [
        {key: value for key, value in group.items() if key not in _PROGRESS}
        for group in optimizer.param_groups
    ]


def reapply_group_values(optimizer: Any, wanted: Groups, *, scheduled: bool) -> list[str]:
    """Set what this run was built with in the groups again; returns a note for each difference.

    ``scheduled``: a scheduler sets lr and weight_decay, from its own state.
    """
    left = _PROGRESS | _SCHEDULED if scheduled else _PROGRESS
    notes: dict[str, None] = {}
    for group, values in zip(optimizer.param_groups, wanted, strict=True):
        for key, value in values.items():
            if key in left:
                continue
            if key in group and _comparable(group[key]) != _comparable(value):
                notes[f"optimizer {key}: {value!r} of this run, not {group[key]!r} as saved"] = None
            group[key] = value
    return list(notes)


def resume_schedule(scheduler: Resumable, saved: dict[str, Any]) -> list[str]:
    """Continue a schedule where the saved one was; returns a note for each difference.

    A scheduler that does not count ``num_steps`` gets its saved state as it is.
    """
    own = scheduler.state_dict()
    if _POSITION not in saved or not isinstance(own, dict):
        scheduler.load_state_dict(saved)
        return []
    scheduler.load_state_dict({**own, _POSITION: saved[_POSITION]})
    return [
        f"schedule {key}: {own.get(key)!r} of this run, not {saved.get(key)!r} as saved"
        for key in _union(own, saved)
        if key != _POSITION and own.get(key) != saved.get(key)
    ]


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _union(*dicts: Iterable[str]) -> list[str]:
    return sorted({key for keys in dicts for key in keys})
