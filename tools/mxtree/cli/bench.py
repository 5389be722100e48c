# SPDX-License-Identifier: Apache-2.0
"""`mxtree bench step`: where the time of a training step goes, here and in peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

bench_app = typer.Typer(
    no_args_is_help=True, help="Measure the installed tree on this machine.", add_completion=False
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(bench_app, name="bench")


@bench_app.command(name="step")
def step(
    preset: Annotated[str, typer.Option(help="flux_12b, flux_535m or flux_tiny.")] = "flux_12b",
    blocks: Annotated[
        str, typer.Option(help="Kinds of block, one of each named; or all of the preset.")
    ] = "joint,single",
    micro_batch: Annotated[str, typer.Option(help="Samples a step; several with commas.")] = "32",
    tokens: Annotated[str, typer.Option(help="Image+text tokens of a sample.")] = "256+256",
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    compare: Annotated[
        str, typer.Option(help="Of eager, compile, diffusers, torchtitan; or single variants.")
    ] = "eager",
    mode: Annotated[
        str, typer.Option(help="step: forward and backward; train: AdamW too.")
    ] = "step",
    precision: Annotated[str, typer.Option(help="bf16, mxfp4 or mxfp6.")] = "bf16",
    gemm_backend: Annotated[str, typer.Option(help="Of the MX GEMMs.")] = "emulated",
    recompute: Annotated[bool, typer.Option(help="Recompute every block in backward.")] = False,
    repeats: Annotated[int, typer.Option(help="Timed steps of each variant.")] = 8,
    limit: Annotated[float, typer.Option(help="Seconds that one variant may take.")] = 240,
    out: Annotated[Path | None, typer.Option(help="Folder for step.md and step.json.")] = None,
    tree: Annotated[Path | None, typer.Option(show_default="trees/default")] = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter in which the tree is installed.")
    ] = None,
) -> int:
    """Time a step of Flux and take it apart: kernels by family, gaps, floors, peers.

    Every variant runs in a process of its own; one that fails costs its own row and exit status 1.
    """
    from mxtree.environment.modules import find_python, run_module
    from mxtree.project import find_project

    chosen = find_python((tree or find_project().default_tree).absolute(), python)
    given = {
        "preset": preset,
        "blocks": blocks,
        "micro-batch": micro_batch,
        "tokens": tokens,
        "device": device,
        "compare": compare,
        "mode": mode,
        "precision": precision,
        "gemm-backend": gemm_backend,
        "repeats": repeats,
        "limit": limit,
    }
    arguments = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    arguments += ["--recompute"] if recompute else []
    arguments += ["--out", str(out.absolute())] if out else []
    return run_module(chosen, "mxflux.benchmarks.step", arguments)
