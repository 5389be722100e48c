# SPDX-License-Identifier: Apache-2.0
"""Verification of a checkpoint against its manifest: every file, every tensor, nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .chunks import damaged_tensors
from .errors import CheckpointError
from .locate import locate
from .manifest import MANIFEST_NAME, Manifest, describe, describe_file, read_manifest
from .safetensors_file import DTYPE_NAMES, TensorInfo

if TYPE_CHECKING:
    from pathlib import Path

    from .sources import TensorSource


def verify(path: Path | str) -> Manifest:
    """Check a checkpoint (folder, BFL file with its manifest beside it, or a run: see locate).

    Returns its manifest. Raises CheckpointError listing every missing, extra, truncated or
    changed file, and every tensor that is missing, extra or not what the manifest says.
    """
    path = locate(path)
    folder, record = manifest_of(path)
    manifest = read_manifest(record)
    problems = [*file_problems(folder, manifest, sorted(manifest.files))]
    if path.is_dir():
        problems += extra_files(folder, manifest)
    if all(": contents changed" in problem for problem in problems):
        problems += _tensor_problems(path, manifest)
    if problems:
        raise CheckpointError(f"{path}: {len(problems)} problem(s):", problems)
    return manifest


def manifest_of(path: Path) -> tuple[Path, Path]:
    """The folder of a checkpoint's files, and its manifest's path."""
    if path.is_file():
        return path.parent, path.with_name(f"{path.name}.{MANIFEST_NAME}")
    return path, path / MANIFEST_NAME


def file_problems(folder: Path, manifest: Manifest, names: list[str]) -> list[str]:
    """What is wrong with the named files."""
    return [problem for name in names if (problem := _file_problem(folder / name, manifest, name))]


def extra_files(folder: Path, manifest: Manifest) -> list[str]:
    """Files that the manifest does not know."""
    present = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return [
        f"extra file: {name}" for name in sorted(present - set(manifest.files) - {MANIFEST_NAME})
    ]


def metadata_problems(stored: dict[str, TensorInfo], manifest: Manifest) -> list[str]:
    """Differences of names, shapes and dtypes between a checkpoint and its manifest."""
    problems = [f"missing tensor: {name}" for name in manifest.tensors if name not in stored]
    problems += [f"extra tensor: {name}" for name in stored if name not in manifest.tensors]
    for name, info in stored.items():
        record = manifest.tensors.get(name)
        if record is None:
            continue
        if list(info.shape) != record.shape:
            problems.append(f"tensor {name}: shape {list(info.shape)}, recorded {record.shape}")
        if DTYPE_NAMES[info.dtype] != record.dtype:
            problems.append(
                f"tensor {name}: dtype {DTYPE_NAMES[info.dtype]}, recorded {record.dtype}"
            )
    return problems


def _file_problem(file: Path, manifest: Manifest, name: str) -> str | None:
    record = manifest.files[name]
    if not file.is_file():
        return f"missing file: {name}"
    size = file.stat().st_size
    if size != record.size:
        kind = "truncated" if size < record.size else "longer than recorded"
        whose = _whose(file, manifest, name)
        return f"file {name}: {kind}: {size} bytes, recorded {record.size}{whose}"
    if describe_file(file) != record:
        return f"file {name}: contents changed (SHA-256 differs){_whose(file, manifest, name)}"
    return None


def _whose(file: Path, manifest: Manifest, name: str) -> str:
    """The tensors to which damaged bytes belong, where the manifest records pieces."""
    damaged = damaged_tensors(file, manifest.chunks.get(name, []))
    return f", in tensor {', '.join(damaged)}" if damaged else ""


def _tensor_problems(path: Path, manifest: Manifest) -> list[str]:
    try:
        source = _open(path, manifest)
    except CheckpointError as error:
        return [str(error)]
    problems = metadata_problems(source.tensors, manifest)
    if problems:
        return problems
    return [
        f"tensor {name}: SHA-256 differs"
        for name, record in manifest.tensors.items()
        if record.sha256 and describe(source.load(name)) != record
    ]


def _open(path: Path, manifest: Manifest) -> TensorSource:
    if manifest.layout == "megatron":
        from .dcp import DistributedTensors

        return DistributedTensors(path)
    from .sources import open_checkpoint

    return open_checkpoint(path).source
