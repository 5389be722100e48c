# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.checkpoint.cli``: what `mxtree ckpt` runs. Megatron is not imported."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from .casting import CAST_DTYPES
from .errors import CheckpointError
from .targets import DEFAULT_SHARD_BYTES, LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, DIFFERENT, USAGE = 0, 1, 2
_SHOWN = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 done, 1 damaged, refused or different, 2 cannot be done like that."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except CheckpointError as error:
        return _report(error, DIFFERENT)
    except (OSError, ValueError) as error:
        return _report(error, USAGE)
    return status


def convert(options: argparse.Namespace) -> int:
    """Write the weights in another layout."""
    from .convert import convert as write
    from .tables import byte_size

    manifest = write(
        options.source,
        options.destination,
        to=options.to,
        max_shard_bytes=options.max_shard_bytes,
        dtype=options.dtype,
        allow_nan=options.allow_nan,
        verify_source=not options.no_verify,
    )
    size = byte_size(sum(file.size for file in manifest.files.values()))
    dtypes = ", ".join(sorted({record.dtype for record in manifest.tensors.values()}))
    print(f"{options.destination}: {options.to}, {len(manifest.tensors)} tensors, {dtypes}, {size}")
    return OK


def inspect(options: argparse.Namespace) -> int:
    """Show what is in a checkpoint."""
    from .summary import summarize
    from .tables import print_summary

    summary = summarize(options.path)
    if options.json:
        print(json.dumps(summary.to_json(), indent=1))
    else:
        print_summary(summary)
    return OK


def verify(options: argparse.Namespace) -> int:
    """Check every file and tensor against the manifest."""
    from .locate import locate
    from .tables import byte_size
    from .verify import verify as check

    path = locate(options.path)
    manifest = check(path)
    size = byte_size(sum(file.size for file in manifest.files.values()))
    print(f"{path}: ok, {len(manifest.files)} files, {len(manifest.tensors)} tensors, {size}")
    return OK


def diff(options: argparse.Namespace) -> int:
    """Compare two checkpoints tensor by tensor."""
    from .differences import compare
    from .tables import print_comparison

    comparison = compare(options.a, options.b, weights_only=options.weights_only)
    if options.json:
        print(json.dumps(comparison.to_json(), indent=1))
    else:
        print_comparison(comparison, None if options.all else _SHOWN)
    return DIFFERENT if comparison.differences else OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mxtree ckpt", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_convert(commands.add_parser("convert", help=_first_line(convert)), LAYOUTS)
    export = commands.add_parser("export", help="Write the weights alone, as safetensors.")
    _add_convert(export, ("diffusers", "mxflux"), default="mxflux")
    shown = commands.add_parser("inspect", help=_first_line(inspect))
    shown.set_defaults(command=inspect)
    shown.add_argument("path")
    shown.add_argument("--json", action="store_true")
    checked = commands.add_parser("verify", help=_first_line(verify))
    checked.set_defaults(command=verify)
    checked.add_argument("path")
    compared = commands.add_parser("diff", help=_first_line(diff))
    compared.set_defaults(command=diff)
    compared.add_argument("a")
    compared.add_argument("b")
    compared.add_argument("--weights-only", action="store_true")
    compared.add_argument("--all", action="store_true", help="every tensor that differs")
    compared.add_argument("--json", action="store_true")
    return parser


def _add_convert(
    parser: argparse.ArgumentParser, layouts: Sequence[str], default: str | None = None
) -> None:
    parser.set_defaults(command=convert)
    parser.add_argument("source")
    parser.add_argument("destination")
    parser.add_argument("--to", choices=layouts, default=default, required=default is None)
    parser.add_argument("--dtype", choices=tuple(CAST_DTYPES), help="round to it")
    parser.add_argument("--allow-nan", action="store_true", help="take NaN and infinities over")
    parser.add_argument("--no-verify", action="store_true", help="do not hash the source first")
    parser.add_argument("--max-shard-bytes", type=int, default=DEFAULT_SHARD_BYTES, metavar="N")


def _first_line(function: object) -> str:
    return (function.__doc__ or "").splitlines()[0]


def _report(error: Exception, status: int) -> int:
    print(f"mxtree ckpt: error: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
