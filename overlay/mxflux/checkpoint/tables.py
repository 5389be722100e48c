# SPDX-License-Identifier: Apache-2.0
"""What the `ckpt` commands print for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from .safetensors_file import DTYPE_NAMES
from .summary import preset_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .differences import Comparison
    from .safetensors_file import TensorInfo
    from .summary import Summary

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_summary(summary: Summary) -> None:
    """A table of two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _rows(summary):
        table.add_row(label, value)
    Console().print(table)


def print_comparison(comparison: Comparison, limit: int | None) -> None:
    """The tensors that differ, most of them if there are many, and how many are equal."""
    console = Console()
    for note in comparison.notes:
        console.print(note, markup=False)
    shown = comparison.differences[:limit]
    if shown:
        table = Table(box=None, pad_edge=False)
        for heading in ("tensor", "difference"):
            table.add_column(heading, overflow="fold")
        for heading in ("elements", "max abs"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in shown:
            largest = "" if row.max_abs is None else f"{row.max_abs:.3g}"
            table.add_row(row.name, row.kind, f"{row.elements:,}" if row.elements else "", largest)
        console.print(table)
    hidden = len(comparison.differences) - len(shown)
    if hidden:
        console.print(f"... and {hidden} more: --all", markup=False)
    console.print(f"{len(comparison.equal)} tensors equal, {len(comparison.differences)} different")


def byte_size(count: int) -> str:
    """A size to read: 12.3 MiB."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def _rows(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "checkpoint", str(summary.path)
    yield "layout", summary.layout
    yield from _training_rows(summary)
    arch = summary.architecture
    sizes = f"{arch.num_joint_layers} joint + {arch.num_single_layers} single blocks"
    sizes += f", hidden {arch.hidden_size}, {arch.num_attention_heads} heads"
    sizes += ", guidance" if arch.guidance_embed else ""
    yield "architecture", f"{preset_name(arch) or 'no preset'}: {sizes}"
    yield "parameters", f"{summary.parameters:,}"
    yield "weights", _described(summary.weights)
    if summary.training_tensors:
        yield "optimizer", _described(summary.training_tensors)
    total = sum(summary.files.values())
    yield "files", f"{len(summary.files)}, {byte_size(total)}"
    yield "manifest", "yes: mxtree ckpt verify" if summary.manifest else "none: cannot be verified"


def _training_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    training = summary.manifest.training if summary.manifest else None
    if training is None:
        yield "holds", "weights only"
        return
    progress = training["progress"]
    yield "iteration", f"{progress['iteration']:,}"
    yield "consumed samples", f"{progress['consumed_samples']:,}"
    yield "recipe", f"sha256 {progress['recipe_sha256'][:16]}... (--json: all of it)"
    yield "holds", ", ".join(("model", *training["holds"]))
    if training["optimizer_format"]:
        yield "optimizer format", training["optimizer_format"]
    yield "ranks", ", ".join(f"{axis} {size}" for axis, size in training["layout"].items())
    yield "written by", ", ".join(f"{name} {v}" for name, v in training["versions"].items())


def _described(tensors: dict[str, TensorInfo]) -> str:
    dtypes = sorted({DTYPE_NAMES[info.dtype] for info in tensors.values()})
    size = byte_size(sum(info.nbytes for info in tensors.values()))
    return f"{len(tensors)} tensors, {size}, {', '.join(dtypes)}"
