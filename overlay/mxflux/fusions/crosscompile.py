# SPDX-License-Identifier: Apache-2.0
"""Compile kernels for an absent GPU through Triton's real front end; read what they use.

Never in a process that has TRITON_INTERPRET=1: the two modes poison each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.fusions.launch import Launch

LDS_BYTES = 160 * 1024
"""LDS of a gfx950 compute unit."""


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel uses. occupancy: waves a SIMD (gfx950), LDS included; 0 where
    unknown.
    """

    vgprs: int
    sgprs: int
    lds: int
    spills: int
    occupancy: int
    loads: dict[str, int]
    digest: str


class _CompileOnly(DriverBase):
    def __init__(self, target: GPUTarget) -> None:
        self._target = target
        super().__init__()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError(ty)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return device * 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise RuntimeError("the compile-only driver cannot run kernels")


def target(arch: str) -> GPUTarget:
    """Triton's target of an architecture by our name: "gfx950", "sm_90"."""
    if arch.startswith("sm_"):
        return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    return GPUTarget("hip", arch, 64)


@contextlib.contextmanager
def compile_for(arch: str) -> Iterator[None]:
    """Make `arch` the target of every Triton compilation inside the block."""
    active = driver._active
    driver.set_active(_CompileOnly(target(arch)))
    try:
        yield
    finally:
        driver._active = active


def compile_launch(launch: Launch, pointers: tuple[torch.Tensor, ...]) -> Any:
    """The compiled kernel of a launch on meta tensors; call it inside compile_for."""
    launch.kernel.device_caches.clear()
    return launch.kernel.warmup(
        *pointers,
        *launch.scalars,
        **launch.constexprs,
        **launch.options,
        **launch.dependent,
        grid=(1,),
    )


def resources(compiled: Any) -> Resources:
    """Registers, LDS, spills and the census of memory instructions."""
    if "amdgcn" in compiled.asm:
        return _amd(compiled)
    return _nvidia(compiled)


def nvidia_tool(name: str) -> str:
    """cuobjdump or nvdisasm: Triton's own, else the one on PATH; FileNotFoundError otherwise."""
    own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: neither at {own} nor on PATH")
    return found


def _amd(compiled: Any) -> Resources:
    asm = compiled.asm["amdgcn"]

    def field(name: str) -> int:
        return int(re.search(rf"^\s*(?:- )?\.{name}:\s*(\d+)", asm, re.MULTILINE)[1])  # type: ignore[index]

    shared = compiled.metadata.shared
    warps = compiled.metadata.num_warps
    occupancy = int(re.search(r"Occupancy:\s*(\d+)", asm)[1])  # type: ignore[index]
    if shared:
        occupancy = min(occupancy, LDS_BYTES // shared * warps // 4)
    loads = Counter(
        re.findall(r"^\s+((?:buffer|global|flat)_(?:load|store)\w*)", asm, re.MULTILINE)
    )
    return Resources(
        vgprs=field("vgpr_count"),
        sgprs=field("sgpr_count"),
        lds=shared,
        spills=field("vgpr_spill_count") + field("sgpr_spill_count"),
        occupancy=occupancy,
        loads=dict(sorted(loads.items())),
        digest=hashlib.sha256(compiled.asm["hsaco"]).hexdigest()[:16],
    )


def _nvidia(compiled: Any) -> Resources:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = subprocess.run(
            [nvidia_tool("cuobjdump"), "-res-usage", cubin.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        sass = subprocess.run(
            [nvidia_tool("nvdisasm"), "-c", cubin.name], capture_output=True, text=True, check=True
        ).stdout
    registers = int(re.search(r"REG:(\d+)", usage)[1])  # type: ignore[index]
    stack = int(re.search(r"STACK:(\d+)", usage)[1])  # type: ignore[index]
    loads = Counter(re.findall(r"\b((?:LDG|STG|LDS|STS|LDL|STL|SHFL|BAR)[\w.]*)", sass))
    return Resources(
        vgprs=registers,
        sgprs=0,
        lds=compiled.metadata.shared,
        spills=stack,
        occupancy=65536
        // (registers * 32 * compiled.metadata.num_warps)
        * compiled.metadata.num_warps,
        loads=dict(sorted(loads.items())),
        digest=hashlib.sha256(compiled.asm["cubin"]).hexdigest()[:16],
    )
