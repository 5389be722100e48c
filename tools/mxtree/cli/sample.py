# SPDX-License-Identifier: Apache-2.0
"""`mxtree sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="sample")(sample)


def sample(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A run, its `latest`, a checkpoint, or a diffusers transformer."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG to write.")],
    prompt: Annotated[list[str] | None, typer.Option(help="What to draw (repeatable).")] = None,
    label: Annotated[
        list[int] | None, typer.Option(help="A digit to draw (repeatable).", min=0, max=9)
    ] = None,
    count: Annotated[int, typer.Option(help="Pictures of each prompt.")] = 1,
    steps: Annotated[int, typer.Option(help="Euler steps.")] = 40,
    cfg: Annotated[
        float | None,
        typer.Option(
            help="Classifier-free guidance; 1 is none.",
            show_default="3 where the run trained for it",
        ),
    ] = None,
    guidance: Annotated[
        float | None, typer.Option(help="Value of the guidance embedding (Flux.1 dev).")
    ] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="Shift noise levels by image size (Flux.1 dev).")
    ] = False,
    seed: Annotated[int, typer.Option(help="Picture i starts from noise seed + i.")] = 0,
    size: Annotated[
        int | None, typer.Option(help="Side in pixels.", show_default="the run's")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(help="Pictures in a row.", show_default="one a prompt")
    ] = None,
    batch: Annotated[int, typer.Option(help="Pictures drawn together.")] = 16,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[
        str | None, typer.Option(help="fp32 or bf16.", show_default="fp32 on the CPU, else bf16")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe of the run.", show_default="above the checkpoint")
    ] = None,
    text_length: Annotated[
        int | None, typer.Option(help="T5 tokens, without a recipe.", show_default="256")
    ] = None,
    vae: Annotated[Path | None, typer.Option(help="Folder of an AutoencoderKL.")] = None,
    clip: Annotated[Path | None, typer.Option(help="Folder of a CLIP text model.")] = None,
    t5: Annotated[Path | None, typer.Option(help="Folder of a T5 encoder.")] = None,
    tree: Annotated[
        Path | None, typer.Option(help="Whose environment.", show_default="trees/default")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="Interpreter.", show_default="the tree's")
    ] = None,
) -> int:
    """Draw pictures with a checkpoint.

    Encoders and decoder are those of the run's recipe. The weights are used unquantized, whatever
    the run trained in.
    """
    from mxtree.environment.modules import find_python, run_module
    from mxtree.project import find_project

    options = {
        "output": output, "count": count, "steps": steps, "cfg": cfg, "guidance": guidance,
        "seed": seed, "size": size, "columns": columns, "batch": batch, "device": device,
        "dtype": dtype, "recipe": recipe, "text-length": text_length, "vae": vae, "clip": clip,
        "t5": t5,
    }  # fmt: skip
    flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
    flags += [f"--prompt={text}" for text in prompt or []]
    flags += [f"--label={digit}" for digit in label or []]
    flags += ["--shift"] if shift else []
    interpreter = find_python(tree or find_project().default_tree, python)
    return run_module(interpreter, "mxflux.sampling.cli", [*flags, "--", str(checkpoint)])
