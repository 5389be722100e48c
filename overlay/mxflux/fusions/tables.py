# SPDX-License-Identifier: Apache-2.0
"""Launch configurations: one static table an architecture, chosen by op, width and rows.

Nothing is timed at run time: the first step of a job costs what every step costs, and the bits of a
result never depend on which configuration won a race. `python -m mxflux.fusions.tune` writes the
tables.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxflux.fusions.launch import INTERPRETER

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = 1
DIRECTORY = Path(__file__).parent / "tables"
OPS = {
    "norm_rope_forward": ("BLOCK_M", "num_warps"),
    "norm_rope_backward": ("BLOCK_M", "num_warps", "programs", "STAGES"),
    "qkv_forward": ("BLOCK_M", "num_warps"),
    "qkv_backward": ("BLOCK_M", "num_warps", "programs", "STAGES"),
    "ln_modulate_forward": ("CHUNK", "BLOCK_R", "programs", "num_warps", "STAGES"),
    "ln_modulate_backward": ("CHUNK", "BLOCK_R", "programs", "num_warps", "STAGES"),
    "gate_residual_forward": ("CHUNK", "BLOCK_R", "programs", "num_warps", "STAGES"),
    "gate_residual_backward": ("CHUNK", "BLOCK_R", "programs", "num_warps", "STAGES"),
    "reduce_partials": ("BLOCK_P", "BLOCK_C", "num_warps"),
}
"""Every op and the keys of its configuration. `programs`: how many programs share the rows."""

_INTERPRETER = {
    "norm_rope_forward": {"BLOCK_M": 64, "num_warps": 4},
    "norm_rope_backward": {"BLOCK_M": 32, "num_warps": 4, "programs": 3, "STAGES": 1},
    "qkv_forward": {"BLOCK_M": 64, "num_warps": 4},
    "qkv_backward": {"BLOCK_M": 32, "num_warps": 4, "programs": 3, "STAGES": 1},
    "ln_modulate": {"CHUNK": 64, "BLOCK_R": 4, "programs": 6, "num_warps": 4, "STAGES": 1},
    "reduce_partials": {"BLOCK_P": 4, "BLOCK_C": 256, "num_warps": 4},
}
"""For the CPU interpreter, whose cost is per program; small enough that every loop runs more than
once.
"""


@dataclass(frozen=True)
class Entry:
    """The configuration for up to max_rows rows (None: any number) of one width (D, H, or partial
    rows).
    """

    width: int
    max_rows: int | None
    config: dict[str, int]


Table = dict[str, tuple[Entry, ...]]


class TableError(ValueError):
    """A configuration table that cannot be used; names file, op and key."""


def configuration(arch: str, op: str, width: int, rows: int) -> dict[str, int]:
    """The configuration of `op` on `arch` ("gfx950", "sm_90", "interpreter").

    The entries of the largest tabulated width <= width apply (else the smallest); among them the
    first whose max_rows holds `rows`. An architecture without a table of its own uses its vendor's.
    """
    if arch == "interpreter":
        name = op if op in _INTERPRETER else "ln_modulate"
        return _INTERPRETER[name]
    return choose(load(table_name(arch))[op], width, rows)


def choose(entries: Sequence[Entry], width: int, rows: int) -> dict[str, int]:
    """`configuration` among one op's entries, the last of each width being open."""
    fitting = [entry.width for entry in entries if entry.width <= width]
    chosen = max(fitting) if fitting else min(entry.width for entry in entries)
    return next(
        entry.config
        for entry in entries
        if entry.width == chosen and (entry.max_rows is None or rows <= entry.max_rows)
    )


def architecture(device: torch.device) -> str:
    """The name under which a device's table is looked up: "gfx950", "sm_90", or "interpreter"."""
    if INTERPRETER:
        return "interpreter"
    return _architecture(device.index if device.index is not None else torch.cuda.current_device())


def dependent_launches(arch: str) -> bool:
    """Whether a kernel can start while the one before it ends: programmatic dependent launch, on
    sm_90 and later with a Triton (3.4 and later) that can ask for it.
    """
    if not arch.startswith("sm_") or int(arch[3:]) < 90:
        return False
    try:
        from triton.backends.nvidia.compiler import CUDAOptions
    except ImportError:  # a build for AMD alone
        return False
    return hasattr(CUDAOptions, "launch_pdl")


def table_name(arch: str) -> str:
    """The table that serves an architecture: its own, else the one tuned for its vendor."""
    if (DIRECTORY / f"{arch}.json").exists():
        return arch
    return "gfx950" if arch.startswith("gfx") else "sm_90"


@functools.cache
def load(arch: str) -> Table:
    """Read and check a table; TableError names what is missing, unknown or out of order."""
    path = DIRECTORY / f"{arch}.json"
    return parse(json.loads(path.read_text(encoding="utf-8")), path.name)


def parse(data: dict[str, Any], name: str) -> Table:
    """Check the JSON form of a table: format, every op, exactly its keys, rows ascending to an open
    end.
    """
    if data.get("format") != FORMAT:
        raise TableError(f"{name}: format: got {data.get('format')!r}, expected {FORMAT}")
    ops = data.get("ops", {})
    if set(ops) != set(OPS):
        raise TableError(f"{name}: ops: got {sorted(ops)}, expected {sorted(OPS)}")
    return {op: parse_entries(ops[op], op, name) for op in OPS}


def parse_entries(rows: list[dict[str, Any]], op: str, name: str) -> tuple[Entry, ...]:
    """Check one op's rows; TableError names what is missing, unknown or out of order."""
    found = []
    for row in rows:
        config = {key: value for key, value in row.items() if key not in ("width", "max_rows")}
        if set(config) != set(OPS[op]):
            raise TableError(f"{name}: {op}: keys {sorted(config)}, expected {sorted(OPS[op])}")
        found.append(Entry(row["width"], row["max_rows"], config))
    for width in {entry.width for entry in found}:
        limits = [entry.max_rows for entry in found if entry.width == width]
        closed = [limit for limit in limits[:-1] if limit is not None]
        if (
            limits[-1] is not None
            or len(closed) != len(limits) - 1
            or closed != sorted(set(closed))
        ):
            raise TableError(f"{name}: {op}: width {width}: max_rows must rise and end with null")
    if not found:
        raise TableError(f"{name}: {op}: no entries")
    return tuple(found)


@functools.cache
def _architecture(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip is not None:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm_{properties.major}{properties.minor}"
