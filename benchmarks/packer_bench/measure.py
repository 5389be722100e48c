# SPDX-License-Identifier: Apache-2.0
"""Times and floors of the packers."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mxflux.fusions import timing
from mxflux.mx import FORMATS, QuantSpec
from mxflux.mx.triton_packers import Tile, plan
from packer_bench.inputs import texts

SHAPE = (32768, 3072)
TIMED = ("e2m1", "e2m3", "e4m3")
KINDS = ("row", "column", "dual")
#: FP32 lanes of a Hopper SM; one instruction a lane a cycle.
LANES = 128


def packer_bytes(kind: str, name: str) -> int:
    """Bytes that packing SHAPE must move: bf16 in, codes and scales out."""
    elements = SHAPE[0] * SHAPE[1]
    blob = FORMATS[name].bits / 8 + 1 / 32
    return int(elements * (2 + blob * (2 if kind == "dual" else 1)))


def instructions(kernel: Any, elements: int, warps: int) -> float | None:
    """SASS instructions a lane an element, from the compiled kernel; None without nvdisasm."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    if not os.access(tool, os.X_OK):
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    names = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)", done.stdout)
    real = [n for n in names if n not in {"NOP", "BRA", "EXIT"}]
    return len(real) * warps * 32 / elements


@dataclass
class Row:
    """One packer: microseconds and its floors."""

    name: str
    kind: str
    time: float
    memory: float
    issue: float | None
    registers: int

    @property
    def floor(self) -> float:
        return max(self.memory, self.issue or 0.0)


def launch(
    x: torch.Tensor, kind: str, name: str, tiling: Tile | None = None
) -> tuple[Callable[[], Any], Any, Tile]:
    """A packer that fills kept buffers, its compiled kernel and its tile."""
    from mxflux.mx.kernels.packers import mx_pack_kernel

    prepared = plan(x, None, *texts(kind, QuantSpec(name)), tiling=tiling)

    def run() -> Any:
        return mx_pack_kernel[prepared.grid](*prepared.arguments, **prepared.keywords)

    words = prepared.keywords
    return run, run(), (words["BLOCK_M"], words["BLOCK_N"], words["num_warps"])


def issue_rate() -> float:
    """Lane instructions a second of this GPU at its top clock."""
    properties = torch.cuda.get_device_properties(0)
    kilohertz = getattr(properties, "clock_rate", 1_980_000)
    return properties.multi_processor_count * LANES * kilohertz * 1e3


def measure(x: torch.Tensor, kind: str, name: str, bandwidth: float) -> Row:
    """Time one packer and work out its floors."""
    run, kernel, (rows, cols, warps) = launch(x, kind, name)
    per_element = instructions(kernel, rows * cols, warps)
    issue = None if per_element is None else per_element * x.numel() / issue_rate() * 1e6
    memory = packer_bytes(kind, name) / bandwidth * 1e6
    return Row(name, kind, timing.device_time(run), memory, issue, kernel.n_regs)
