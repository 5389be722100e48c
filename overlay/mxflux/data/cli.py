# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.data.cli``: the part of `mxtree data` that needs torch and Energon."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from mxflux.training.batch import LATENT_KEYS

from .cli_parser import BUILTIN, DTYPES, parser
from .errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .encode import Encoding

OK, FAULTS, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command: 0 done, 1 the data set has faults, 2 it cannot be done like that."""
    options = parser(encode, synth, check).parse_args(arguments)
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
    from .check import check_dataset
    from .check_report import as_json, as_text
    from .check_sample import Wanted

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
    print(json.dumps(as_json(found), indent=1) if options.json else as_text(found))
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
        if given := [
            f"--{n.replace('_', '-')}" for n in BUILTIN if getattr(options, n) is not None
        ]:
            raise DataError(f"{', '.join(given)}: --encoder diffusers has these from its models")
        from .encoders.pretrained import AutoencoderCodec, ClipAndT5

        codec = AutoencoderCodec(options.vae, options.device)
        text = ClipAndT5(options.clip, options.t5, options.text_length, options.device)
        encoder = {**text.describe(), **codec.describe()}
    else:
        if given := [f"--{name}" for name, folder in folders.items() if folder is not None]:
            raise DataError(f"{', '.join(given)} without --encoder diffusers has no effect")
        if options.device != "cpu":
            raise DataError(f"--device {options.device}: --encoder builtin runs on the cpu")
        asked = {n: v for n in BUILTIN if (v := getattr(options, n)) is not None}
        sizes: dict[str, Any] = {**BUILTIN, **asked}
        codec = BlockCodec(BlockTransform(sizes["channels"], sizes["colour"]))
        text = HashedWords(options.text_length, sizes["context_dim"], sizes["vec_in_dim"])
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


if __name__ == "__main__":
    sys.exit(main())
