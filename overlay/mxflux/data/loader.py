# SPDX-License-Identifier: Apache-2.0
"""What every loader offers a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

STATE_FORMAT = 1
Batch = dict[str, Any]
State = dict[str, Any]


class Loader(Protocol):
    """This data-parallel rank's batches, on the CPU, in the dtypes they are stored in.

    A batch has latents, or mean and logvar, [B,C,H,W]; prompt_embeds [B,S,context_dim];
    pooled_prompt_embeds [B,vec_in_dim]; timestep [B] int64 where the samples have one.
    Reading draws from no global random generator.
    """

    observed: int
    """Samples handed out so far, those before a restart included."""

    @property
    def samples(self) -> int | None:
        """Samples of this rank; None: endless."""
        ...

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def state_dict(self) -> State:
        """Where to continue after the last batch that was handed out; picklable."""
        ...

    def load_state_dict(self, state_dict: State) -> None:
        """Continue bit-identically; raises DataError when the state is of another loader."""
        ...

    def load_resharded(self, states: Sequence[State]) -> None:
        """Continue from all ranks' states of a run with another data-parallel size."""
        ...

    def close(self) -> None:
        """Stop loader processes; the loader is of no use afterwards."""
        ...


def require_same(state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise DataError unless the state has the values that this loader has."""
    if state.get("format") != STATE_FORMAT:
        raise DataError(
            f"data loader state of format {state.get('format')!r}: this release reads "
            f"{STATE_FORMAT}"
        )
    problems = [
        f"{key}: saved with {state.get(key)!r}, this run has {value!r}"
        for key, value in own.items()
        if state.get(key) != value
    ]
    if problems:
        raise DataError("the data loader cannot continue from this state:", problems)


def batch_rows(batch: Mapping[str, Tensor]) -> int:
    """Samples in a batch."""
    return int(batch["prompt_embeds"].shape[0])
