# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.sampling.cli``: the part of `mxtree sample` that needs torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mxflux.checkpoint.errors import CheckpointError
from mxflux.checkpoint.locate import locate
from mxflux.checkpoint.sources import open_checkpoint
from mxflux.data.digits import caption
from mxflux.data.errors import DataError
from mxflux.recipe.errors import RecipeError

from .context import Context, Encoders, context_of_run, context_without_run, find_recipe
from .draw import Request, draw
from .model import DTYPES, load_model, one_process
from .pictures import grid, write_png

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxflux.checkpoint.sources import Checkpoint

DAMAGED, USAGE = 1, 2
DEFAULT_SIZE, DEFAULT_TEXT = 256, 256


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw and return the exit status: 1 for a checkpoint that is none, 2 for what cannot be."""
    options = _parser().parse_args(arguments)
    try:
        run(options)
    except CheckpointError as error:
        return _say(error, DAMAGED)
    except (DataError, RecipeError, OSError, ValueError, RuntimeError) as error:
        return _say(error, USAGE)
    return 0


def _say(error: Exception, status: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return status


def run(options: argparse.Namespace) -> None:
    """Load, draw and write what the options say."""
    if options.output.suffix.lower() != ".png":  # before minutes of drawing, not after
        raise DataError(f"{options.output}: pictures are written as .png")
    if options.columns is not None and options.columns < 1:
        raise DataError(f"--columns {options.columns} must be positive")
    path = locate(options.checkpoint)
    with one_process(options.device) as device:
        checkpoint = open_checkpoint(path)
        context = _context(options, checkpoint)
        dtype = options.dtype or ("fp32" if options.device == "cpu" else "bf16")
        model = load_model(checkpoint, DTYPES[dtype], device)
        request = _request(options, context)
        pictures = draw(model, context, request, device)
    columns = len(request.prompts) if len(request.prompts) > 1 else min(len(pictures), 8)
    write_png(grid(pictures, _given(options.columns, columns)), options.output)
    print(
        f"{options.output}: {len(pictures)} picture(s) of {path} ({dtype}, unquantized), "
        f"{request.steps} steps, cfg {request.cfg_scale:g}, seed {request.seed}"
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _context(options: argparse.Namespace, checkpoint: Checkpoint) -> Context:
    encoders = Encoders(options.vae, options.clip, options.t5)
    recipe = options.recipe or find_recipe(checkpoint.path)
    if recipe is not None:
        if options.text_length is not None:
            raise DataError(
                f"--text-length {options.text_length}: data.text_length of {recipe} is used"
            )
        return context_of_run(recipe, checkpoint.architecture, encoders)
    return context_without_run(
        checkpoint.architecture,
        encoders,
        text_length=_given(options.text_length, DEFAULT_TEXT),
        image_size=_given(options.size, DEFAULT_SIZE),
    )


def _request(options: argparse.Namespace, context: Context) -> Request:
    if options.label and not context.prompts:
        raise DataError("--label: this model was not trained on digits; give --prompt TEXT")
    prompts = [*(options.prompt or []), *(caption(label) for label in options.label or [])]
    if options.cfg not in {None, 1.0} and context.cfg_trained is False:
        raise DataError(
            f"--cfg {options.cfg:g}: the run had model.cfg_dropout_prob: 0 and never saw the "
            "empty prompt that guidance extrapolates from"
        )
    return Request(
        prompts=tuple(prompts) or context.prompts,
        count=options.count,
        steps=options.steps,
        cfg_scale=context.cfg_scale if options.cfg is None else options.cfg,
        guidance=options.guidance,
        seed=options.seed,
        size=_given(options.size, context.image_size),
        shift=options.shift,
        batch=options.batch,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mxtree sample", description="Draw with a trained Flux.")
    add = parser.add_argument
    add("checkpoint", type=Path, help="run directory, its latest, checkpoint or diffusers folder")
    add("-o", "--output", type=Path, required=True, help="PNG to write")
    add("--prompt", action="append", help="what to draw (repeatable)")
    add("--label", action="append", type=int, choices=range(10), help="a digit (repeatable)")
    add("--count", type=int, default=1, help="pictures of each prompt")
    add("--steps", type=int, default=40, help="Euler steps")
    add("--cfg", type=float, help="classifier-free guidance (3 where the run trained for it)")
    add("--guidance", type=float, help="value of the guidance embedding (Flux.1 dev)")
    add("--shift", action="store_true", help="shift noise levels by image size (Flux.1 dev)")
    add("--seed", type=int, default=0, help="first noise seed")
    add("--size", type=int, help="side in pixels (the run's)")
    add("--columns", type=int, help="pictures in a row")
    add("--batch", type=int, default=16, help="pictures drawn together")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=tuple(DTYPES), help="fp32 on the CPU, bf16 elsewhere")
    add("--recipe", type=Path, help="recipe of the run, where it does not lie above the checkpoint")
    add("--text-length", type=int, help="T5 tokens, without a recipe")
    add("--vae", help="folder of an AutoencoderKL")
    add("--clip", help="folder of a CLIP text model")
    add("--t5", help="folder of a T5 encoder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
