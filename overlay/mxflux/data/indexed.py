# SPDX-License-Identifier: Apache-2.0
"""Loader over samples that are computed from their index: mock data and the digits."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .errors import DataError
from .loader import STATE_FORMAT, batch_rows, require_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from .loader import Batch, State


class Samples(Protocol):
    """Samples by index; ``length`` None: any index is good."""

    @property
    def kind(self) -> str:
        """The recipe's data.kind."""
        ...

    @property
    def length(self) -> int | None:
        """Samples there are."""
        ...

    def __getitem__(self, index: int) -> dict[str, Tensor]: ...


class IndexedLoader:
    """Reads global micro-batches in order; rank r takes the r-th ``batch_size`` samples of each.

    In training the samples repeat, in a new seeded order each time (``shuffle_seed``); without one
    they come in order, once, or for ever with ``endless``. Samples of a global step are the same
    for every data-parallel size that divides it.
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        *,
        rank: int,
        world_size: int,
        shuffle_seed: int | None,
        endless: bool,
    ) -> None:
        self.source = samples
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.shuffle_seed = shuffle_seed
        self.endless = endless or samples.length is None
        self.observed = 0
        self._consumed = 0
        self._order: tuple[int, Tensor] | None = None
        self._check_length()

    @property
    def samples(self) -> int | None:
        """Samples of this rank; None: endless."""
        if self.shuffle_seed is not None or self.source.length is None:
            return None
        width = self.batch_size * self.world_size
        full, rest = divmod(self.source.length, width)
        return full * self.batch_size + min(
            self.batch_size, max(0, rest - self.rank * self.batch_size)
        )

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        start = self._consumed + self.rank * self.batch_size
        stop = start + self.batch_size
        if not self.endless and self.source.length is not None:
            stop = min(stop, self.source.length)
        if stop <= start:
            raise StopIteration
        rows = [self.source[self._index(position)] for position in range(start, stop)]
        self._consumed += self.batch_size * self.world_size
        batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        self.observed += batch_rows(batch)
        return batch

    def state_dict(self) -> State:
        """Samples that all ranks together have consumed, and what they were."""
        return {**self._identity(), "format": STATE_FORMAT, "rank": self.rank,
                "world_size": self.world_size, "consumed": self._consumed}  # fmt: skip

    def load_state_dict(self, state_dict: State) -> None:
        """Continue after the samples consumed; raises DataError for another loader's state."""
        own = {**self._identity(), "rank": self.rank, "world_size": self.world_size}
        require_same(state_dict, own)
        self._continue(int(state_dict["consumed"]))

    def load_resharded(self, states: Sequence[State]) -> None:
        """Continue from the states of another data-parallel size.

        Raises DataError when the ranks disagree on what was consumed.
        """
        for state in states:
            require_same(state, self._identity())
        consumed = sorted({int(state["consumed"]) for state in states})
        if len(consumed) != 1:
            raise DataError(f"the saved ranks had consumed different numbers: {consumed}")
        width = self.batch_size * self.world_size
        if consumed[0] % width:
            raise DataError(
                f"the saved run had consumed {consumed[0]} samples, no multiple of this run's "
                f"{self.world_size} rank(s) x micro-batch {self.batch_size}"
            )
        self._continue(consumed[0])

    def _continue(self, consumed: int) -> None:
        self._consumed = consumed
        self.observed = consumed // self.world_size

    def close(self) -> None:
        """Nothing runs in the background."""

    def _identity(self) -> dict[str, Any]:
        return {"kind": self.source.kind, "seed": self.shuffle_seed, "length": self.source.length}

    def _index(self, position: int) -> int:
        length = self.source.length
        if length is None:
            return position
        epoch, offset = divmod(position, length)
        if self.shuffle_seed is None:
            return offset
        if self._order is None or self._order[0] != epoch:
            own = torch.Generator().manual_seed(_epoch_seed(self.shuffle_seed, epoch))
            self._order = (epoch, torch.randperm(length, generator=own))
        return int(self._order[1][offset])

    def _check_length(self) -> None:
        if self.samples == 0:
            raise DataError(
                f"rank {self.rank} of {self.world_size} gets no validation sample: data.kind="
                f"{self.source.kind} has {self.source.length}, a batch of all ranks "
                f"{self.batch_size * self.world_size}"
            )


def _epoch_seed(seed: int, epoch: int) -> int:
    """32 bits out of both: torch's CPU generator ignores what is above."""
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    return int.from_bytes(digest[:4], "little")
