# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.training.main --run-dir RUN``, under torchrun: train what its recipe says.

Exit status: 0 finished, or stopped by a signal after saving; 1 what ran is not what was asked for;
2 the recipe or this machine cannot do it; 3 the run failed.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from mxflux.recipe.errors import RecipeError
from mxflux.recipe.loading import load
from mxflux.recipe.values import resolved_value

from .errors import ExitCode, TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence

RECIPE = "recipe.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status; the one place where any error becomes a message."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("mxflux").setLevel(logging.INFO)
    logging.getLogger("megatron").setLevel(logging.WARNING)  # at INFO it lists every parameter
    try:
        return train(options.run_dir, fake_world=options.fake_world)
    except TrainingError as error:
        return _say(error, error.exit_code)
    except RecipeError as error:
        return _say(error, ExitCode.USAGE)
    except (ValueError, KeyError, OSError) as error:
        # What data, checkpoints and configs refuse; KeyError's own text is only the key.
        return _say(error, ExitCode.RUNTIME)
    except Exception:  # noqa: BLE001  the boundary: a fault of the program shows where it is
        traceback.print_exc()
        return ExitCode.RUNTIME


def train(run_dir: Path, *, fake_world: int | None = None) -> int:
    """Train the recipe of a run directory in this process, one rank of the run.

    Megatron is imported only once the device is prepared for it.
    """
    path = run_dir / RECIPE
    loaded = load(path)
    recipe = loaded.recipe
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    from .process import started_process

    with started_process(
        recipe.device,
        transformer_impl=recipe.model.transformer_impl,
        backend=resolved_value(recipe, "parallel.distributed_backend"),
        timeout_minutes=recipe.parallel.distributed_timeout_minutes,
        fake_world=fake_world,
    ) as process:
        from .trainer import Trainer

        trainer = Trainer(recipe, run_dir, process, recipe_sha256=digest, origins=loaded.origins)
        outcome = trainer.run() if fake_world is None else trainer.run_fake()
    if outcome.status == "finished" and process.is_first and fake_world is None:
        print(f"finished after step {outcome.step}", flush=True)
    return ExitCode.OK


def _say(error: Exception, code: ExitCode) -> int:
    rank = os.environ.get("RANK")
    where = f"rank {rank}: " if rank is not None else ""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    print(f"{where}error: {text or type(error).__name__}", file=sys.stderr, flush=True)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mxflux.training.main", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True, help="folder with recipe.yaml")
    parser.add_argument(
        "--fake-world",
        type=int,
        metavar="N",
        help="build rank 0 of N ranks, the others imagined, and run one step on synthetic data",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
