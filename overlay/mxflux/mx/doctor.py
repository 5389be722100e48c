# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.mx.doctor`: which packers and GEMM backends run here, on what, and why not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

import torch

from mxflux.mx.backends import BACKENDS
from mxflux.mx.formats import FORMATS
from mxflux.mx.packers import triton_missing


def device_here() -> torch.device:
    """The GPU if torch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def version_of(package: str) -> str:
    """Installed version of a distribution, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def environment(device: torch.device) -> list[str]:
    """Lines that say where we are."""
    python = sys.version.split()[0]
    lines = [
        f"python {python}, torch {torch.__version__}, triton {version_of('triton')}",
        f"aiter {version_of('amd-aiter')}, torchao {version_of('torchao')}",
    ]
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        arch = getattr(properties, "gcnArchName", "") or f"sm_{properties.major}{properties.minor}"
        return [*lines, f"device: {properties.name} ({arch})"]
    return [*lines, "device: cpu (torch sees no GPU)"]


def backend_lines(device: torch.device) -> list[str]:
    """One line a GEMM backend."""
    lines = []
    for name, backend in BACKENDS.items():
        why = backend.missing(device)
        formats = ", ".join(backend.FORMATS)
        state = f"runs: {formats}" if why is None else f"not here: {why} (would take {formats})"
        lines.append(f"  {name:<10} {state}")
    return lines


def packer_lines(device: torch.device) -> list[str]:
    """One line a packer; all formats, equal bytes."""
    why = triton_missing(device)
    formats = ", ".join(FORMATS)
    return [
        f"  {'reference':<10} runs: {formats}",
        f"  {'triton':<10} {f'runs: {formats}' if why is None else f'not here: {why}'}",
    ]


def report() -> str:
    """The whole page."""
    device = device_here()
    lines = [*environment(device), "", "packers", *packer_lines(device)]
    return "\n".join([*lines, "", "GEMM backends", *backend_lines(device)])


def main() -> int:
    """Print the page; exit 0."""
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
