# SPDX-License-Identifier: Apache-2.0
"""On resume, the learning rate, decay and Adam constants of this run are in effect, not the saved.

torch's and Megatron's load_state_dict take them over from the checkpoint without a word: a recipe
that asks for another learning rate would go on with the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .parts import Resumable

_POSITION = "num_steps"
"""How far Megatron's OptimizerParamScheduler has come; all else in its state is the recipe's."""
_PROGRESS = frozenset({"params", "step"})
_SCHEDULED = frozenset({"lr", "weight_decay"})
_STRUCTURE = ("wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr")
_RANGES = ("max_lr", "min_lr", "start_wd", "end_wd")
"""Settings by which Megatron 0.19 tells parameter groups apart, beside what makes a group one."""

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


def adopt_ranges(optimizer: Any, state: dict[Any, Any] | list[Any]) -> list[str]:
    """Let a saved state load under other learning rates; returns a note for each difference.

    Megatron 0.19 looks a group up by its `_RANGES` too, so a run with another one would not find
    its groups. The saved groups in ``state`` get this run's, where no two groups of an optimizer
    differ in them alone; those that do are left to Megatron, which loads equal ones and refuses
    others.
    Raises CheckpointError when ``state`` is that of more or fewer optimizers.
    """
    notes: dict[str, None] = {}
    for inner, saved in _with_states(optimizer, state):
        notes |= dict.fromkeys(_adopt(inner.param_groups, _saved_groups(saved)))
    return list(notes)


def _with_states(optimizer: Any, state: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each optimizer that is no chain, with its state.

    As Megatron's ChainedOptimizer saves them: a chain of one as that one, others by position.
    """
    chained = getattr(optimizer, "chained_optimizers", None)
    if chained is not None and len(chained) < 2:
        for inner in chained:  # none: this rank has nothing to train
            yield from _with_states(inner, state)
        return
    own, states = chained or [optimizer], _states(state)
    if len(states) != len(own):
        raise CheckpointError(
            f"the checkpoint has the state of {len(states)} optimizer(s), this run has {len(own)}: "
            "resume with the optimizer it was saved with, or start from the weights with model_only"
        )
    if chained is None:
        yield optimizer, state
        return
    for inner, saved in zip(own, states, strict=True):
        yield from _with_states(inner, saved)


def _states(state: Any) -> list[Any]:
    if isinstance(state, list):
        return state
    positions = sorted(key for key in state if isinstance(key, int))
    return [state[key] for key in positions] or [state]


def _adopt(own_groups: Groups, saved_groups: Groups) -> Iterator[str]:
    ours = _by_structure(own_groups)
    for structure, saved in _by_structure(saved_groups).items():
        own = ours.get(structure, [])
        if len(saved) != 1 or len(own) != 1:
            continue
        for key in _RANGES:
            value, old = own[0].get(key), saved[0].pop(key, None)
            if value != old:
                yield f"optimizer {key}: {value!r} of this run, not {old!r} as saved"
            if key in own[0]:
                saved[0][key] = value


def _saved_groups(state: dict[str, Any]) -> Groups:
    inner = state.get("optimizer", state)
    groups: Groups = inner.get("param_groups", []) if isinstance(inner, dict) else []
    return groups


def _by_structure(groups: Groups) -> dict[tuple[Any, ...], Groups]:
    found: dict[tuple[Any, ...], Groups] = {}
    for group in groups:
        structure = tuple(group.get(key, group.get(f"pre_{key}")) for key in _STRUCTURE)
        found.setdefault(structure, []).append(group)
    return found


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
