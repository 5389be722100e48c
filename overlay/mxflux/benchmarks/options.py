# SPDX-License-Identifier: Apache-2.0
"""The command line of the step benchmark and what its words stand for."""

from __future__ import annotations

import argparse
from pathlib import Path

from mxflux.benchmarks.variants import GROUPS, PRECISIONS, VARIANTS, Variant
from mxflux.benchmarks.workload import Workload

SUMMARY = "A step of Flux, timed and taken apart: kernels by family, gaps, floors, peers."


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="mxtree bench step", description=SUMMARY)
    found.add_argument("--preset", default="flux_12b", help="flux_12b, flux_535m or flux_tiny")
    found.add_argument("--blocks", default="joint,single", help="kinds, or all of the preset")
    found.add_argument("--micro-batch", default="32", help="samples a step; several with commas")
    found.add_argument("--tokens", default="256+256", help="image+text tokens of a sample")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--compare", default="eager", help=f"of {','.join(GROUPS)}, or variants")
    found.add_argument(
        "--mode", choices=("step", "train"), default="step", help="train: with AdamW"
    )
    found.add_argument("--precision", choices=tuple(PRECISIONS), default="bf16")
    found.add_argument("--gemm-backend", default="emulated", help="of MX GEMMs")
    found.add_argument("--recompute", action="store_true", help="recompute every block")
    found.add_argument("--repeats", type=int, default=8)
    found.add_argument("--limit", type=float, default=240, help="seconds a variant may take")
    found.add_argument("--out", type=Path, help="folder for step.md and step.json")
    found.add_argument("--worker", help=argparse.SUPPRESS)
    found.add_argument("--fill-cache", action="store_true", help=argparse.SUPPRESS)
    return found


def variants_of(text: str) -> list[Variant]:
    """Variants behind the names of --compare; ValueError names an unknown one."""
    names: list[str] = []
    for name in text.split(","):
        if name not in GROUPS and name not in VARIANTS:
            known = ", ".join(dict.fromkeys((*GROUPS, *VARIANTS)))
            raise ValueError(f"--compare {name!r} is unknown. Choose from: {known}.")
        names += GROUPS.get(name, (name,))
    return [VARIANTS[name] for name in dict.fromkeys(names)]


def workload(options: argparse.Namespace, batch: int) -> Workload:
    """The sizes that the command line asks for."""
    image, _, text = options.tokens.partition("+")
    if not (image.isdecimal() and text.isdecimal()):
        raise ValueError(f"--tokens {options.tokens!r}: expected image+text, as 256+256")
    blocks = options.blocks.split(",")
    return Workload.of(options.preset, blocks, batch, (int(image), int(text)), options.device)


def batches(options: argparse.Namespace) -> list[int]:
    """The micro-batches that the command line asks for."""
    parts = options.micro_batch.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"--micro-batch {options.micro_batch!r}: expected numbers, as 32,64")
    return [int(part) for part in parts]
