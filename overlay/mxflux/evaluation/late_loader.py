# SPDX-License-Identifier: Apache-2.0
"""A loader that does not touch its data set before the first batch is asked for. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mxflux.data.loader import Batch, Loader, State


class LateLoader:
    """Stands in for the loader that ``open_data`` gives, and opens it when it is first used.

    MLPerf's clock starts before any part of the system touches the data set: an Energon loader
    reads the index of its shards when it is made, which must not happen during the warm-up.
    A run that resumes opens it to restore its position.
    """

    def __init__(self, open_data: Callable[[], Loader]) -> None:
        self._open = open_data
        self._loader: Loader | None = None

    @property
    def opened(self) -> Loader:
        """The loader itself."""
        if self._loader is None:
            self._loader = self._open()
        return self._loader

    @property
    def observed(self) -> int:
        """Samples handed out so far; 0 before the data set is opened."""
        return 0 if self._loader is None else self._loader.observed

    @property
    def samples(self) -> int | None:
        """Samples of this rank; None: endless."""
        return self.opened.samples

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.opened)

    def __next__(self) -> Batch:
        return next(self.opened)

    def state_dict(self) -> State:
        """Where to continue."""
        return self.opened.state_dict()

    def load_state_dict(self, state_dict: State) -> None:
        """Continue from a state."""
        self.opened.load_state_dict(state_dict)

    def load_resharded(self, states: Sequence[State]) -> None:
        """Continue from the states of another number of ranks."""
        self.opened.load_resharded(states)

    def close(self) -> None:
        """Stop what was opened; nothing is opened for it."""
        if self._loader is not None:
            self._loader.close()
