# SPDX-License-Identifier: Apache-2.0
"""Every sample of a pre-encoded data set read and judged, without Energon's own reader."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from .check_sample import Findings, Wanted, check_sample
from .energon_dataset import TRAIN, VALIDATION, dataset_path, require_energon, split_counts
from .errors import DataError
from .parts import PART_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def check_dataset(path: str, wanted: Wanted) -> Findings:
    """Read everything. Raises DataError when it is no data set at all."""
    require_energon()
    folder = dataset_path(path)
    found = Findings(path)
    found.encoding = stored_encoding(folder)
    seen: dict[str, str] = {}
    for split in (TRAIN, VALIDATION):
        try:
            counts = split_counts(folder, split)
        except DataError as error:
            if split == TRAIN:
                found.problems.append(str(error))
            continue
        for shard, count in counts.items():
            _check_shard(folder, split, shard, count, wanted, found, seen)
    _check_timesteps(found)
    return found


def stored_encoding(folder: Path) -> str:
    """subflavors.encoding of dataset.yaml. Raises DataError when it is missing or unknown."""
    import yaml

    path = folder / ".nv-meta" / "dataset.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        encoding = values["subflavors"]["encoding"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: no subflavors.encoding ({error})") from error
    if encoding not in PART_NAMES:
        raise DataError(
            f"{path}: subflavors.encoding is {encoding!r}, expected one of {', '.join(PART_NAMES)}"
        )
    return str(encoding)


def _check_shard(
    folder: Path,
    split: str,
    shard: str,
    count: int,
    wanted: Wanted,
    found: Findings,
    seen: dict[str, str],
) -> None:
    found.shards += 1
    number = 0
    try:
        for key, parts in _samples_of(folder / shard, shard, found.problems):
            number += 1
            if key in seen:
                found.problems.append(f"{shard}: sample {key} is in {seen[key]} already")
            seen[key] = shard
            where = f"{shard}: sample {key}"
            check_sample(where, split, parts, wanted, found)
    except FileNotFoundError:
        found.problems.append(f"{shard}: the file is missing")
    except (tarfile.TarError, OSError, EOFError) as error:
        found.problems.append(f"{shard}: truncated or damaged after {number} sample(s): {error}")
    found.samples[split] = found.samples.get(split, 0) + number
    if number != count:
        found.problems.append(
            f"{shard}: {number} sample(s), .nv-meta/.info.json says {count} "
            "(run energon prepare again)"
        )


def _samples_of(
    path: Path, shard: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Neighbouring members with the same name up to the first dot are a sample."""
    current: str | None = None
    parts: dict[str, bytes] = {}
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if not member.isreg():
                continue
            file = tar.extractfile(member)
            data = b"" if file is None else file.read()
            if len(data) != member.size:
                raise tarfile.ReadError(f"{member.name} ends after {len(data)} bytes")
            folder, _, name = member.name.rpartition("/")
            stem, _, part = name.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if key != current:
                if current is not None:
                    yield current, parts
                current, parts = key, {}
            if part in parts:
                problems.append(f"{shard}: sample {key} has {part} twice")
            parts[part] = data
    if current is not None:
        yield current, parts


def _check_timesteps(found: Findings) -> None:
    levels = found.timesteps.get(VALIDATION)
    total = found.samples.get(VALIDATION, 0)
    if levels and sum(levels.values()) != total:
        found.problems.append(
            f"split {VALIDATION}: {sum(levels.values())} of {total} samples have a timestep; "
            "all of them must, or none"
        )
