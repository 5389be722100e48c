# SPDX-License-Identifier: Apache-2.0
"""`python -m mxflux.mx.doctor`: which packers and GEMM backends run here, on what, and why not."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mxflux.mx.backends import BACKENDS
from mxflux.mx.formats import FORMATS
from mxflux.mx.packers import triton_missing


@dataclass(frozen=True)
class Tool:
    """A packer or a GEMM backend: the formats it takes, and why it does not run here (or None)."""

    name: str
    formats: tuple[str, ...]
    missing: str | None

    def line(self) -> str:
        """For the page."""
        takes = ", ".join(self.formats)
        if self.missing is None:
            return f"  {self.name:<10} runs: {takes}"
        return f"  {self.name:<10} not here: {self.missing} (would take {takes})"


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


def packers_here(device: torch.device) -> list[Tool]:
    """Both packers; all formats, equal bytes."""
    return [
        Tool("reference", tuple(FORMATS), None),
        Tool("triton", tuple(FORMATS), triton_missing(device)),
    ]


def backends_here(device: torch.device) -> list[Tool]:
    """Every GEMM backend."""
    return [Tool(n, tuple(b.FORMATS), b.missing(device)) for n, b in BACKENDS.items()]


def report() -> str:
    """The whole page."""
    device = device_here()
    packers = [tool.line() for tool in packers_here(device)]
    backends = [tool.line() for tool in backends_here(device)]
    return "\n".join(
        [*environment(device), "", "packers", *packers, "", "GEMM backends", *backends]
    )


def facts() -> dict[str, list[Any]]:
    """The same as plain values."""
    device = device_here()
    return {
        "environment": environment(device),
        "packers": [asdict(tool) for tool in packers_here(device)],
        "backends": [asdict(tool) for tool in backends_here(device)],
    }


def main(argv: list[str] | None = None) -> int:
    """Print the page, or with --json the facts; exit 0."""
    parser = argparse.ArgumentParser(prog="python -m mxflux.mx.doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="machine form")
    print(json.dumps(facts()) if parser.parse_args(argv).json else report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
