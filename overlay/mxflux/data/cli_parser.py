# SPDX-License-Identifier: Apache-2.0
"""Options of ``python -m mxflux.data.cli``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from mxflux.training.batch import LATENT_KEYS

from .parts import PART_NAMES, PREENCODED

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BUILTIN = {"channels": 16, "colour": "rgb", "context_dim": 4096, "vec_in_dim": 768}
"""What only the built-in encoder can be told, and what it is without: Flux.1 schnell's sizes."""
Command = Callable[[argparse.Namespace], int]


def parser(encode: Command, synth: Command, check: Command) -> argparse.ArgumentParser:
    """A parser whose result has the command to call as ``command``."""
    top = argparse.ArgumentParser(prog="mxtree data", description="Pre-encoded data sets.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("encode", help="pictures and captions to a data set")
    add.set_defaults(command=encode)
    add.add_argument("pictures", type=Path)
    add.add_argument("output", type=Path)
    add.add_argument("--captions", type=Path)
    add.add_argument("--encoder", choices=("builtin", "diffusers"), default="builtin")
    for name in ("vae", "clip", "t5"):
        add.add_argument(f"--{name}")
    add.add_argument("--colour", choices=("rgb", "gray"), help="rgb by default")
    add.add_argument("--batch", type=int, default=8)
    add.add_argument("--device", default="cpu")
    _sizes(add)
    add.set_defaults(**dict.fromkeys(BUILTIN))
    _writing(add)
    add = commands.add_parser("synth", help="a data set of random numbers")
    add.set_defaults(command=synth)
    add.add_argument("output", type=Path)
    add.add_argument("--samples", type=int, required=True)
    add.add_argument("--encoding", choices=tuple(PART_NAMES), default=PREENCODED)
    add.add_argument("--seed", type=int, default=0)
    _sizes(add)
    _writing(add)
    add = commands.add_parser("check", help="judge every sample of a data set")
    add.set_defaults(command=check)
    add.add_argument("dataset")
    add.add_argument("--json", action="store_true")
    add.add_argument("--latents", choices=tuple(LATENT_KEYS))
    for name in ("image-size", "channels", "text-length", "context-dim", "vec-in-dim"):
        add.add_argument(f"--{name}", type=int)
    return top


def _sizes(add: argparse.ArgumentParser) -> None:
    """Flux.1 schnell's sizes by default."""
    add.add_argument("--image-size", type=int, default=256)
    add.add_argument("--channels", type=int, default=BUILTIN["channels"])
    add.add_argument("--text-length", type=int, default=256)
    add.add_argument("--context-dim", type=int, default=BUILTIN["context_dim"])
    add.add_argument("--vec-in-dim", type=int, default=BUILTIN["vec_in_dim"])


def _writing(add: argparse.ArgumentParser) -> None:
    add.add_argument("--validation", type=int, default=0)
    add.add_argument("--latents", choices=tuple(LATENT_KEYS), default="presampled")
    add.add_argument("--shard-size", type=int, default=1000)
    add.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
