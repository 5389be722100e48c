# SPDX-License-Identifier: Apache-2.0
"""Triton's real JIT front end for a GPU that is not there: compiles, launches nothing.

Never in a process that runs the interpreter (TRITON_INTERPRET=1): the two modes exclude each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

if TYPE_CHECKING:
    from collections.abc import Iterator

GFX950 = GPUTarget("hip", "gfx950", 64)
#: LDS of a gfx950 compute unit, which bounds how many workgroups run on it.
LDS_BYTES = 160 * 1024
SIMDS = 4


class CompileOnlyDriver(DriverBase):  # type: ignore[misc]
    """Answers what the front end asks of a driver; nothing can be launched or timed."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target
        super().__init__()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError(f"compile only: no launcher for {ty}")

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:  # noqa: ARG002
        return 0

    def get_active_torch_device(self) -> str:
        return "cpu"

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("compile only: nothing to time")


@contextlib.contextmanager
def compiling_for(target: GPUTarget) -> Iterator[None]:
    """Inside, `kernel.warmup(..)` compiles for `target`; one target a process."""
    before = driver._active
    driver.set_active(CompileOnlyDriver(target))
    try:
        yield
    finally:
        driver._active = before


@dataclass(frozen=True)
class Resources:
    """What a gfx950 kernel takes. occupancy: waves on a SIMD by registers and by LDS, at most 8."""

    vgpr: int
    agpr: int
    sgpr: int
    lds: int
    spills: int
    scratch: int
    occupancy: int
    binary: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def resources(kernel: Any, warps: int) -> Resources:
    """Read them from the metadata of a kernel compiled for gfx950.

    The assembly's own occupancy ignores LDS, and its `.group_segment_fixed_size` is always 0.
    """
    asm = kernel.asm["amdgcn"]

    def field(name: str) -> int:
        found = re.search(rf"^\s*(?:- )?\.{name}:\s*(\d+)", asm, re.MULTILINE)
        if found is None:
            raise ValueError(f"no .{name} in the metadata of {kernel.name}")
        return int(found[1])

    lds = int(kernel.metadata.shared)
    waves = re.search(r"Occupancy:\s*(\d+)", asm)
    occupancy = int(waves[1]) if waves else 0
    if lds:
        occupancy = min(occupancy, LDS_BYTES // lds * warps // SIMDS)
    return Resources(
        vgpr=field("vgpr_count"),
        agpr=field("agpr_count"),
        sgpr=field("sgpr_count"),
        lds=lds,
        spills=field("vgpr_spill_count") + field("sgpr_spill_count"),
        scratch=field("private_segment_fixed_size"),
        occupancy=occupancy,
        binary=hashlib.sha256(kernel.asm["hsaco"]).hexdigest()[:16],
    )
