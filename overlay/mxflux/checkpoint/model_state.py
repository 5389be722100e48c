# SPDX-License-Identifier: Apache-2.0
"""Loading a state dict into a model, strict about everything but extra state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def load_model_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load ``state``; only ``_extra_state`` entries (TransformerEngine's) may be absent or surplus.

    Raises CheckpointError listing every other name that is missing or unexpected, before
    anything is loaded.
    """
    expected = {name for name in model.state_dict() if not _is_extra_state(name)}
    given = {name for name in state if not _is_extra_state(name)}
    problems = [f"missing: {name}" for name in sorted(expected - given)]
    problems += [f"unexpected: {name}" for name in sorted(given - expected)]
    if problems:
        raise CheckpointError(f"the state does not fit {type(model).__name__}:", problems)
    model.load_state_dict(state, strict=False)


def _is_extra_state(name: str) -> bool:
    return name.endswith("_extra_state")
