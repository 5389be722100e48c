# SPDX-License-Identifier: Apache-2.0
"""`mxtree data`: encode pictures, check a data set, synthesise one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Output = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; must not exist.")]
Latents = Annotated[str, typer.Option(help="presampled (latents) or resample (mean and logvar).")]
ImageSize = Annotated[int, typer.Option(help="Side of the pictures in pixels.")]
Channels = Annotated[int, typer.Option(help="Latent channels: model.in_channels / 4.")]
TextLength = Annotated[int, typer.Option(help="T5 tokens: 256 for schnell, 512 for dev.")]
ContextDim = Annotated[int, typer.Option(help="Width of the prompt embeddings.")]
VecInDim = Annotated[int, typer.Option(help="Width of the pooled embedding.")]
ShardSize = Annotated[int, typer.Option(help="Samples in a shard.")]
Dtype = Annotated[str, typer.Option(help="bf16, fp16 or fp32.")]
Tree = Annotated[Path | None, typer.Option(help="Whose environment.", show_default="trees/default")]
Python = Annotated[Path | None, typer.Option(help="Interpreter.", show_default="the tree's")]


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for command in (encode, check, synth):
        group.command(name=command.__name__)(command)
    app.add_typer(group, name="data", help="Encode pictures, check a data set, synthesise one.")


def encode(
    pictures: Annotated[Path, typer.Argument(help="Folder of pictures, searched in depth.")],
    output: Output,
    captions: Annotated[
        Path | None,
        typer.Option(
            help=".jsonl, .csv or .tsv with file_name and text.", show_default=".txt beside each"
        ),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="builtin (no network, for demonstrations) or diffusers.")
    ] = "builtin",
    vae: Annotated[Path | None, typer.Option(help="Folder of an AutoencoderKL.")] = None,
    clip: Annotated[Path | None, typer.Option(help="Folder of a CLIP text model.")] = None,
    t5: Annotated[Path | None, typer.Option(help="Folder of a T5 encoder.")] = None,
    validation: Annotated[
        int, typer.Option(help="Pictures kept for validation, with timesteps 0..7 in turn.")
    ] = 0,
    image_size: ImageSize = 256,
    latents: Latents = "presampled",
    text_length: TextLength = 256,
    channels: Annotated[
        int | None, typer.Option(help="builtin: latent channels.", show_default="16")
    ] = None,
    context_dim: Annotated[
        int | None, typer.Option(help="builtin: width of the embeddings.", show_default="4096")
    ] = None,
    vec_in_dim: Annotated[
        int | None, typer.Option(help="builtin: width of the pooled one.", show_default="768")
    ] = None,
    colour: Annotated[
        str | None, typer.Option(help="builtin: rgb or gray.", show_default="rgb")
    ] = None,
    shard_size: ShardSize = 1000,
    dtype: Dtype = "bf16",
    batch: Annotated[int, typer.Option(help="Pictures encoded together.")] = 8,
    device: Annotated[str, typer.Option(help="Where diffusers' models run.")] = "cpu",
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Encode a folder of pictures and captions; the data set appears whole or not at all."""
    options = {
        "captions": captions, "encoder": encoder, "vae": vae, "clip": clip, "t5": t5,
        "validation": validation, "image-size": image_size, "latents": latents,
        "text-length": text_length, "channels": channels, "context-dim": context_dim,
        "vec-in-dim": vec_in_dim, "colour": colour, "shard-size": shard_size, "dtype": dtype,
        "batch": batch, "device": device,
    }  # fmt: skip
    return _run(tree, python, "encode", [str(pictures), str(output)], options)


def check(
    dataset: Annotated[Path, typer.Argument(help="Folder of an Energon data set.")],
    image_size: Annotated[int | None, typer.Option(show_default="the first sample's")] = None,
    latents: Annotated[str | None, typer.Option(show_default="the first sample's")] = None,
    text_length: Annotated[int | None, typer.Option(show_default="the first sample's")] = None,
    channels: Annotated[int | None, typer.Option(show_default="the first sample's")] = None,
    context_dim: Annotated[int | None, typer.Option(show_default="the first sample's")] = None,
    vec_in_dim: Annotated[int | None, typer.Option(show_default="the first sample's")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Read every sample and name shard, sample and part of each fault. Exit status 1 on any."""
    options = {
        "image-size": image_size, "latents": latents, "text-length": text_length,
        "channels": channels, "context-dim": context_dim, "vec-in-dim": vec_in_dim,
    }  # fmt: skip
    return _run(tree, python, "check", [str(dataset)], options, ["--json"] if as_json else [])


def synth(
    output: Output,
    samples: Annotated[int, typer.Option(help="Samples for training.")],
    validation: Annotated[int, typer.Option(help="Samples for validation.")] = 0,
    image_size: ImageSize = 256,
    latents: Latents = "presampled",
    text_length: TextLength = 256,
    channels: Channels = 16,
    context_dim: ContextDim = 4096,
    vec_in_dim: VecInDim = 768,
    encoding: Annotated[
        str, typer.Option(help="preencoded, or preencoded_numpy (MLPerf's form).")
    ] = "preencoded",
    shard_size: ShardSize = 1000,
    dtype: Dtype = "bf16",
    seed: Annotated[int, typer.Option(help="Start of the random numbers.")] = 0,
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Write a data set of random numbers, to test the reading path at full size."""
    options = {
        "samples": samples, "validation": validation, "image-size": image_size,
        "latents": latents, "text-length": text_length, "channels": channels,
        "context-dim": context_dim, "vec-in-dim": vec_in_dim, "encoding": encoding,
        "shard-size": shard_size, "dtype": dtype, "seed": seed,
    }  # fmt: skip
    return _run(tree, python, "synth", [str(output)], options)


def _run(
    tree: Path | None,
    python: Path | None,
    command: str,
    arguments: list[str],
    options: dict[str, Any],
    switches: Sequence[str] = (),
) -> int:
    """``--`` stands before the paths, so that one that begins with a dash is a path."""
    from mxtree.environment.modules import find_python, run_module
    from mxtree.project import find_project

    flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
    flags += switches
    interpreter = find_python(tree or find_project().default_tree, python)
    return run_module(interpreter, "mxflux.data.cli", [command, *flags, "--", *arguments])
