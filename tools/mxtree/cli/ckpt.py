# SPDX-License-Identifier: Apache-2.0
"""`mxtree ckpt`: convert, inspect, verify, compare and export checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Any_ = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A run, its `latest`, a folder of checkpoints, one of them, a file."
    ),
]
Dtype = Annotated[
    str | None, typer.Option(help="Round to float32, bfloat16 or float16.", show_default="kept")
]
AllowNan = Annotated[bool, typer.Option("--allow-nan", help="Take NaN and infinities over.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not hash the source first.")]
Tree = Annotated[Path | None, typer.Option(help="Whose environment.", show_default="trees/default")]
Python = Annotated[Path | None, typer.Option(help="Interpreter.", show_default="the tree's")]


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for command in (inspect, verify, diff, convert, export):
        group.command(name=command.__name__)(command)
    app.add_typer(group, name="ckpt", help="Convert, inspect, verify and compare checkpoints.")


def inspect(path: Any_, as_json: Json = False, tree: Tree = None, python: Python = None) -> int:
    """Show iteration, architecture, sizes and recipe of a checkpoint."""
    return _run(tree, python, "inspect", path, _flag("--json", as_json))


def verify(path: Any_, tree: Tree = None, python: Python = None) -> int:
    """Check every file and tensor against the manifest. Exit status 1 names what is damaged."""
    return _run(tree, python, "verify", path)


def diff(
    a: Annotated[Path, typer.Argument(metavar="A")],
    b: Annotated[Path, typer.Argument(metavar="B")],
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Not the optimizer's tensors.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Every tensor that differs.")] = False,
    as_json: Json = False,
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Compare two checkpoints, of any layouts, tensor by tensor. Exit status 1 when they differ."""
    flags = [
        *_flag("--weights-only", weights_only),
        *_flag("--all", show_all),
        *_flag("--json", as_json),
    ]
    return _run(tree, python, "diff", a, b, flags)


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Any checkpoint, or a run.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="Must not exist.")],
    to: Annotated[str, typer.Option(help="diffusers, bfl, mxflux or megatron.")],
    dtype: Dtype = None,
    allow_nan: AllowNan = False,
    no_verify: NoVerify = False,
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Write the weights of a checkpoint in another layout, without changing a bit."""
    flags = _converting(to, dtype, allow_nan, no_verify)
    return _run(tree, python, "convert", source, destination, flags)


def export(
    source: Annotated[Path, typer.Argument(metavar="PATH", help="Any checkpoint, or a run.")],
    destination: Annotated[Path, typer.Argument(metavar="OUT", help="Must not exist.")],
    to: Annotated[str, typer.Option(help="mxflux (native names) or diffusers.")] = "mxflux",
    dtype: Dtype = None,
    allow_nan: AllowNan = False,
    no_verify: NoVerify = False,
    tree: Tree = None,
    python: Python = None,
) -> int:
    """Write the weights alone, as safetensors."""
    flags = _converting(to, dtype, allow_nan, no_verify)
    return _run(tree, python, "export", source, destination, flags)


def _converting(to: str, dtype: str | None, allow_nan: bool, no_verify: bool) -> list[str]:
    return [
        f"--to={to}",
        *([f"--dtype={dtype}"] if dtype else []),
        *_flag("--allow-nan", allow_nan),
        *_flag("--no-verify", no_verify),
    ]


def _flag(name: str, given: bool) -> list[str]:
    return [name] if given else []


def _run(tree: Path | None, python: Path | None, command: str, *arguments: Path | list[str]) -> int:
    from mxtree.environment.modules import find_python, run_module
    from mxtree.project import find_project

    paths = [str(argument) for argument in arguments if isinstance(argument, Path)]
    flags = [flag for argument in arguments if isinstance(argument, list) for flag in argument]
    interpreter = find_python(tree or find_project().default_tree, python)
    # `--` so that a path that begins with a dash is a path.
    line = [command, *flags, "--", *paths]
    return run_module(interpreter, "mxflux.checkpoint.cli", line)
