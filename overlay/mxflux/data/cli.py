# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.data.cli``: the part of `mxtree data` that needs torch and Energon."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mxflux.training.batch import LATENT_KEYS

from .errors import DataError
from .parts import PART_NAMES, PREENCODED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .check import Findings
    from .encode import Encoding

OK, FAULTS, USAGE = 0, 1, 2
SHOWN = 50
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 the data set has faults, 2 it cannot be done like that."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    return status


def encode(options: argparse.Namespace) -> int:
    """Encode a folder of pictures."""
    from .encode import encode_pictures
    from .pictures import captioned_pictures

    pictures = captioned_pictures(options.pictures, options.captions)
    encoding = _encoding(options)
    counts = encode_pictures(pictures, options.output, encoding, _progress(len(pictures)))
    print(f"{options.output}: {sum(counts.values())} samples in {len(counts)} shards")
    _say_settings(encoding)
    return OK


def synth(options: argparse.Namespace) -> int:
    """Write random samples."""
    from .settings import LATENT_FACTOR, SampleShape
    from .synth import synthesise

    side = options.image_size // LATENT_FACTOR
    shape = SampleShape(
        options.channels, side, side, options.text_length, options.context_dim, options.vec_in_dim
    )
    counts = synthesise(
        options.output,
        shape,
        samples=options.samples,
        validation_samples=options.validation,
        latent_keys=LATENT_KEYS[options.latents],
        encoding=options.encoding,
        shard_size=options.shard_size,
        seed=options.seed,
        dtype=DTYPES[options.dtype],
    )
    print(f"{options.output}: {sum(counts.values())} samples in {len(counts)} shards")
    return OK


def check(options: argparse.Namespace) -> int:
    """Judge every sample of a data set."""
    from .check import Wanted, check_dataset

    found = check_dataset(
        options.dataset,
        Wanted(
            vae_latent_mode=options.latents,
            image_size=options.image_size,
            channels=options.channels,
            text_length=options.text_length,
            context_dim=options.context_dim,
            vec_in_dim=options.vec_in_dim,
        ),
    )
    print(json.dumps(_as_json(found), indent=1) if options.json else _as_text(found))
    return FAULTS if found.problems else OK


def _encoding(options: argparse.Namespace) -> Encoding:
    from .encode import Encoding
    from .encoders.blocks import BlockTransform
    from .encoders.codec import BlockCodec, PictureCodec, TextEncoder
    from .encoders.words import HashedWords

    codec: PictureCodec
    text: TextEncoder
    folders = {name: getattr(options, name) for name in ("vae", "clip", "t5")}
    if options.encoder == "diffusers":
        if missing := [f"--{name}" for name, folder in folders.items() if folder is None]:
            raise DataError(f"--encoder diffusers needs the folders {', '.join(missing)}")
        from .encoders.pretrained import AutoencoderCodec, ClipAndT5

        codec = AutoencoderCodec(options.vae, options.device)
        text = ClipAndT5(options.clip, options.t5, options.text_length, options.device)
        encoder = {**text.describe(), **codec.describe()}
    else:
        if given := [f"--{name}" for name, folder in folders.items() if folder is not None]:
            raise DataError(f"{', '.join(given)} without --encoder diffusers has no effect")
        codec = BlockCodec(BlockTransform(options.channels, options.colour))
        text = HashedWords(options.text_length, options.context_dim, options.vec_in_dim)
        encoder = codec.describe()
    return Encoding(
        codec=codec,
        text=text,
        description={"encoder": encoder, "latents": list(LATENT_KEYS[options.latents])},
        latent_keys=LATENT_KEYS[options.latents],
        image_size=options.image_size,
        validation=options.validation,
        shard_size=options.shard_size,
        dtype=DTYPES[options.dtype],
        batch=options.batch,
    )


def _say_settings(encoding: Encoding) -> None:
    """What a recipe must say to train on it."""
    prompt, pooled = encoding.text.encode("")
    encoder = encoding.description["encoder"]
    mode = "presampled" if encoding.latent_keys == ("latents",) else "resample"
    print(
        f"recipe: data.image_size: {encoding.image_size}, data.text_length: {prompt.shape[0]}, "
        f"data.vae_latent_mode: {mode}, model.context_dim: {prompt.shape[1]}, "
        f"model.vec_in_dim: {pooled.shape[0]}"
    )
    if mode == "resample":
        scale, shift = encoder.get("vae_scale", 1.0), encoder.get("vae_shift", 0.0)
        print(f"recipe: data.vae_scale: {scale}, data.vae_shift: {shift}")


def _progress(total: int) -> Any:
    """A line on standard error for every tenth of the work."""
    step = max(1, total // 10)

    def report(done: int) -> None:
        if done % step == 0 or done == total:
            print(f"{done} of {total} pictures", file=sys.stderr, flush=True)

    return report


def _as_json(found: Findings) -> dict[str, Any]:
    return {
        "path": found.path,
        "encoding": found.encoding,
        "vae_latent_mode": found.vae_latent_mode,
        "shape": None if found.shape is None else vars(found.shape),
        "samples": found.samples,
        "shards": found.shards,
        "dtypes": sorted(found.dtypes),
        "timesteps": {split: dict(sorted(c.items())) for split, c in found.timesteps.items()},
        "problems": found.problems,
    }


def _as_text(found: Findings) -> str:
    split = ", ".join(f"{name} {count}" for name, count in found.samples.items())
    lines = [
        (
            f"{found.path}: {found.encoding}, {found.vae_latent_mode}, {found.shards} shards, "
            f"samples: {split}"
        ),
        f"sizes: {found.shape}" if found.shape else "sizes: no whole sample tells them",
        f"dtypes: {', '.join(sorted(found.dtypes)) or 'none'}",
    ]
    lines += [
        f"timesteps of {name}: " + ", ".join(f"{k}: {n}" for k, n in sorted(counter.items()))
        for name, counter in found.timesteps.items()
    ]
    lines += found.problems[:SHOWN]
    if len(found.problems) > SHOWN:
        lines.append(f"... and {len(found.problems) - SHOWN} more")
    lines.append(f"{len(found.problems)} problem(s)" if found.problems else "no problem")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mxtree data", description="Pre-encoded data sets.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser("encode", help="pictures and captions to a data set")
    add.set_defaults(command=encode)
    add.add_argument("pictures", type=Path)
    add.add_argument("output", type=Path)
    add.add_argument("--captions", type=Path)
    add.add_argument("--encoder", choices=("builtin", "diffusers"), default="builtin")
    for name in ("vae", "clip", "t5"):
        add.add_argument(f"--{name}")
    add.add_argument("--colour", choices=("rgb", "gray"), default="rgb")
    add.add_argument("--batch", type=int, default=8)
    add.add_argument("--device", default="cpu")
    _sizes(add)
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
    return parser


def _sizes(add: argparse.ArgumentParser) -> None:
    """Flux.1 schnell's sizes by default."""
    add.add_argument("--image-size", type=int, default=256)
    add.add_argument("--channels", type=int, default=16)
    add.add_argument("--text-length", type=int, default=256)
    add.add_argument("--context-dim", type=int, default=4096)
    add.add_argument("--vec-in-dim", type=int, default=768)


def _writing(add: argparse.ArgumentParser) -> None:
    add.add_argument("--validation", type=int, default=0)
    add.add_argument("--latents", choices=tuple(LATENT_KEYS), default="presampled")
    add.add_argument("--shard-size", type=int, default=1000)
    add.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")


if __name__ == "__main__":
    sys.exit(main())
