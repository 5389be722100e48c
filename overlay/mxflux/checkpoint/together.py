# SPDX-License-Identifier: Apache-2.0
"""Doing something on all ranks so that an error of one is raised on every one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = TypeVar("Result")


def gather(value: Result) -> list[Result]:
    """The values of all ranks of the default group, by rank."""
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, value)
    return gathered


def share(names: list[str]) -> list[str]:
    """The names that fall to this rank."""
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return names[rank::world]


def on_rank_zero(action: Callable[[], object]) -> None:
    """Run on rank 0; what it raises is raised everywhere, so that no rank waits for another."""
    everywhere(action if torch.distributed.get_rank() == 0 else lambda: None)


def everywhere(action: Callable[[], Result]) -> Result:
    """Run on every rank and raise the first OSError or ValueError of any on all."""
    error: Exception | None = None
    result: Result | None = None
    try:
        result = action()
    except (OSError, ValueError) as caught:
        error = caught
    for other in gather(None if error is None else (type(error), str(error))):
        if other is not None:
            raise error or _rebuilt(*other)
    return result  # type: ignore[return-value]  # an action that returned None is one of None


def raise_together(folder: Path, problems: list[str]) -> None:
    """Raise CheckpointError on every rank when any rank has problems, with those of all."""
    found = list(dict.fromkeys(problem for part in gather(problems) for problem in part))
    if found:
        raise CheckpointError(f"{folder}: {len(found)} problem(s):", found)


def _rebuilt(kind: type[Exception], text: str) -> Exception:
    return CheckpointError(text) if issubclass(kind, CheckpointError) else kind(text)
