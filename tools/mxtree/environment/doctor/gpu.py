# SPDX-License-Identifier: Apache-2.0
"""GPUs and their architectures, from torch where there is one, else from the drivers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from mxtree.environment.doctor.row import Row, missing, ok

_NODES = Path("/sys/class/kfd/kfd/topology/nodes")

#: Architectures whose tensor cores multiply the MX formats themselves; others emulate them.
NATIVE_MX = frozenset({"gfx950"})


def row(architectures: list[str]) -> Row:
    """Return the row for ``architectures``, one entry for each GPU."""
    if not architectures:
        fix = "none is needed for the CPU tests; for training, see that the driver is loaded"
        return missing("GPU", "none found", fix)
    kinds = sorted(set(architectures))
    counted = ", ".join(f"{architectures.count(kind)} x {kind}" for kind in kinds)
    how = "native" if NATIVE_MX.issuperset(kinds) else "emulated"
    return ok("GPU", f"{counted} (MX formats {how})")


def from_drivers() -> list[str]:
    """Return the architecture of each GPU without torch: AMD's kernel driver, then nvidia-smi."""
    return from_kfd(_NODES) or _from_nvidia_smi()


def from_kfd(nodes: Path) -> list[str]:
    """Return AMD's architectures; ``nodes`` is the topology folder of the kernel driver.

    gfx_target_version is major * 10000 + minor * 100 + stepping; the last two are one hexadecimal
    digit each in the name: 90500 is gfx950, 90010 is gfx90a.
    """
    found = []
    for path in sorted(nodes.glob("*/properties")):
        version = re.search(r"^gfx_target_version (\d+)$", path.read_text("utf-8"), re.MULTILINE)
        number = int(version[1]) if version else 0
        if number:
            major, minor, stepping = number // 10000, number // 100 % 100, number % 100
            found.append(f"gfx{major}{minor:x}{stepping:x}")
    return found


def _from_nvidia_smi() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    process = subprocess.run(query, capture_output=True, text=True, check=False)
    capabilities = re.findall(r"^(\d+)\.(\d+)$", process.stdout, re.MULTILINE)
    return [f"sm_{major}{minor}" for major, minor in capabilities]
