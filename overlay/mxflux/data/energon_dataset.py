# SPDX-License-Identifier: Apache-2.0
"""Opening an Energon data set: what it must be, which samples are this rank's, how they decode."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cook import batch_samples, cook
from .errors import DataError

if TYPE_CHECKING:
    from .settings import DataSettings

TRAIN, VALIDATION = "train", "val"
META = ".nv-meta"


@dataclass(frozen=True)
class Dataset:
    """Energon's data set of batches, the samples of this rank, and what the shards are."""

    batches: Any
    rank_samples: int
    digest: str
    """SHA-256 over the names and counts of the split's shards."""


def require_energon() -> None:
    """Raise DataError when Energon cannot be imported."""
    try:
        import megatron.energon  # noqa: F401
    except ImportError as error:
        raise DataError(
            f"Energon data sets need the package megatron-energon ({error}): "
            "pip install megatron-energon"
        ) from error


def open_dataset(
    settings: DataSettings, *, rank: int, world_size: int, workers: int, training: bool
) -> Dataset:
    """Open a split of a data set. Raises DataError naming path, split or shard."""
    path = dataset_path(settings.path)
    split = TRAIN if training else VALIDATION
    counts = split_counts(path, split)
    require_shards(path, counts)
    require_enough(path, split, sum(counts.values()), world_size, workers)
    from megatron.energon import WorkerConfig, get_train_dataset, get_val_dataset
    from megatron.energon.errors import reraise_exception

    config = WorkerConfig(
        rank=rank,
        world_size=world_size,
        num_workers=workers,
        seed_offset=settings.seed,
        global_error_handler=reraise_exception,
        restore_error_handler=reraise_exception,
    )
    common = {
        "worker_config": config,
        "batch_size": settings.batch_size(training),
        "task_encoder": task_encoder(settings),
    }
    if training:
        batches = get_train_dataset(
            path,
            shuffle_buffer_size=settings.shuffle_buffer_size,
            max_samples_per_sequence=settings.max_samples_per_sequence,
            **common,
        )
    else:
        batches = get_val_dataset(path, **common)
    listing = json.dumps([split, counts]).encode()
    return Dataset(batches, _rank_samples(batches), hashlib.sha256(listing).hexdigest())


def dataset_path(given: str | None) -> Path:
    """The folder; raises DataError when it is not set, missing or no Energon data set."""
    if given is None or not given.strip():
        raise DataError(
            "data.path is not set: data.kind=energon needs the folder of the data set "
            "(make one with: mxtree data encode PICTURES FOLDER)"
        )
    path = Path(given)
    if not path.is_dir():
        raise DataError(f"data.path={given}: there is no such folder")
    if not (path / META / ".info.json").is_file():
        raise DataError(
            f"data.path={given}: no Energon data set, {META}/.info.json is missing "
            "(make one with mxtree data encode, or run energon prepare on its shards)"
        )
    return path


def split_counts(path: Path, split: str) -> dict[str, int]:
    """Shard -> samples of a split, in order. Raises DataError when the split is not there."""
    from megatron.energon.epathlib import EPath
    from megatron.energon.flavors.webdataset.empty_dataset_error import EmptyDatasetError
    from megatron.energon.flavors.webdataset.metadata import WebdatasetMeta

    try:
        meta = WebdatasetMeta.from_config(EPath(path), split_part=split)
    except (AssertionError, EmptyDatasetError, KeyError, FileNotFoundError) as error:
        raise DataError(f"data.path={path}: no split {split!r} with shards ({error})") from error
    return {shard.name: shard.count for shard in meta.shards}


def require_shards(path: Path, counts: dict[str, int]) -> None:
    """Raise DataError naming every shard of the split, or index of one, that is missing."""
    names = [name for shard in counts for name in (shard, f"{shard}.idx")]
    if missing := [name for name in names if not (path / name).is_file()]:
        raise DataError(f"data.path={path}: files are missing:", missing)


def require_enough(path: Path, split: str, samples: int, ranks: int, workers: int) -> None:
    """Raise DataError when a loader process would have no sample."""
    readers = ranks * max(1, workers)
    if samples < readers:
        raise DataError(
            f"data.path={path}: split {split!r} has {samples} sample(s) for {ranks} rank(s) with "
            f"{max(1, workers)} loader process(es) each, {readers - samples} would have none"
        )


def task_encoder(settings: DataSettings) -> Any:
    """Energon's task encoder: raw bytes in, checked samples and stacked batches out."""
    from functools import partial

    from megatron.energon import Cooker, DefaultTaskEncoder
    from megatron.energon.task_encoder.base import stateless

    class FluxEncoder(DefaultTaskEncoder):  # type: ignore[misc]
        cookers = (Cooker(stateless(partial(cook, settings=settings))),)
        decoder = None
        __default_failure_tolerance__ = 1

        @stateless  # type: ignore[untyped-decorator]
        def batch(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
            return batch_samples(samples)

    return FluxEncoder()


def _rank_samples(batches: Any) -> int:
    """Samples of this rank, counted where they are not batches yet."""
    from megatron.energon.wrappers import BatchDataset

    dataset = batches
    while not isinstance(dataset, BatchDataset):
        dataset = dataset.dataset
    return int(dataset.dataset.len_rank())
