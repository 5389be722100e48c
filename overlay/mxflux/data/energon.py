# SPDX-License-Identifier: Apache-2.0
"""Loader over a pre-encoded Energon data set (megatron-energon 7.4): resumable, fail-closed.

What differs from Energon's defaults, each because a run must not go on with other data than it
was asked for: an unreadable sample is an error, not a log line; a rank or loader process without
samples is an error; no global random generator is drawn from; what comes back after a restart is
bit-identical.
"""

from __future__ import annotations

import contextlib
import threading
from tarfile import ReadError
from typing import TYPE_CHECKING, Any

import torch
from megatron.energon.errors import SampleException as SampleError

from .energon_dataset import Dataset, open_dataset
from .errors import DataError
from .loader import STATE_FORMAT, batch_rows, require_same
from .state_bytes import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .loader import Batch, State
    from .settings import DataSettings

_HASH_BITS = 2**63
#: Without loader processes Energon keeps its position in a class variable of this process, so that
#: the prefetch of an evaluation and a training step cannot read at the same time.
_IN_THIS_PROCESS = threading.Lock()


class EnergonLoader:
    """One data-parallel rank's batches of an Energon data set (see ``Loader``).

    Validation yields the rank's samples once, in the order of the shards; the last batch may be
    short. Raises DataError naming path, split, shard, sample or key.
    """

    def __init__(
        self, settings: DataSettings, *, rank: int, world_size: int, training: bool
    ) -> None:
        self.settings = settings
        self.training = training
        self.rank = rank
        self.world_size = world_size
        self.workers = settings.num_workers if training else settings.val_num_workers
        self.observed = 0
        self._dataset: Dataset = open_dataset(
            settings, rank=rank, world_size=world_size, workers=self.workers, training=training
        )
        self.samples = None if training else self._dataset.rank_samples
        self._loader = self._build()
        self._iterator: Iterator[Batch] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._loader is None:
            raise DataError("this data loader was closed")
        batch = self._read()
        if batch is None and not self.training and self.settings.endless_validation:
            self._iterator = None
            batch = self._read()
        if batch is None:
            self._iterator = None
            if self.training:
                raise DataError(f"{self.settings.path}: the training data ended")
            raise StopIteration
        kept = {key: value for key, value in batch.items() if not key.startswith("__")}
        self.observed += batch_rows(kept)
        return kept

    def state_dict(self) -> State:
        """Energon's state of this rank's loader processes; training only."""
        if not self.training:
            raise DataError("a validation loader has no state: every evaluation starts anew")
        return {**self._identity(), "format": STATE_FORMAT, "observed": self.observed,
                "energon": dumps(self._loader.save_state_rank())}  # fmt: skip

    def load_state_dict(self, state_dict: State) -> None:
        """Continue after the last batch of the saved run; before the first batch of this one.

        Raises DataError when settings that decide the order of samples differ.
        """
        require_same(state_dict, self._identity())
        if self._iterator is not None:
            raise DataError("the data loader has started: restore its state before the first batch")
        self._loader.restore_state_rank(loads(state_dict["energon"]))
        self.observed = int(state_dict["observed"])

    def load_resharded(self, states: Sequence[State]) -> None:
        """Refused: Energon ties its position to the ranks and loader processes that were.

        Raises DataError saying with how many ranks the run continues.
        """
        raise DataError(
            f"the position in an Energon data set belongs to {len(states)} data-parallel rank(s), "
            f"this run has {self.world_size}: continue with {len(states)}, or load the model and "
            "optimizer only"
        )

    def close(self) -> None:
        """Stop the loader processes."""
        self._iterator = None
        self._loader = None

    def _read(self) -> Batch | None:
        """The next batch, None at the end; what a loader process raised without its traceback."""
        # Loader processes are forked with the first batch, and must not inherit a read half done.
        shared = self.workers and self._iterator is not None
        alone = contextlib.nullcontext() if shared else _IN_THIS_PROCESS
        try:
            with alone:
                if self._iterator is None:
                    self._iterator = iter(self._loader)
                return next(self._iterator, None)
        except DataError as error:
            raise DataError(_last_message(error)) from error
        except (SampleError, ValueError, OSError, ReadError, AssertionError) as error:
            raise DataError(
                f"{self.settings.path}: Energon cannot read on ({_last_message(error)}); "
                f"look for the sample with: mxtree data check {self.settings.path}"
            ) from error

    def _identity(self) -> dict[str, Any]:
        s = self.settings
        return {
            "kind": s.kind, "seed": s.seed, "rank": self.rank, "world_size": self.world_size,
            "workers": self.workers, "micro_batch_size": s.batch_size(self.training),
            "max_samples_per_sequence": s.max_samples_per_sequence,
            "shuffle_buffer_size": s.shuffle_buffer_size,
            "shards": self._dataset.digest,
        }  # fmt: skip

    def _build(self) -> Any:
        from megatron.energon import get_loader, get_savable_loader

        quick: dict[str, Any] = {"prefetch_factor": self.settings.prefetch_factor}
        if self.workers == 0:  # nothing to watch, and nothing to collect, in another process
            quick["watchdog_timeout_seconds"] = None
        if self.training:
            collect = {} if self.workers else {"gc_collect_every_n_steps": 0}
            loader = get_savable_loader(self._dataset.batches, **quick, **collect)
        else:
            loader = get_loader(self._dataset.batches, **quick)
        # Energon asks for pinned memory also where there is no accelerator to copy to.
        loader.pin_memory = torch.cuda.is_available()
        # Without one of its own the loader draws its processes' seeds from the global generator.
        loader.generator = torch.Generator().manual_seed(
            (self.settings.seed * 1000003 + self.rank) % _HASH_BITS
        )
        return loader


def _last_message(error: Exception) -> str:
    """The message alone, where a loader process has put its traceback around it."""
    text, name = str(error), f"{type(error).__name__}: "
    return text.rpartition(name)[2].strip() if "Original Traceback" in text else text
