# SPDX-License-Identifier: Apache-2.0
"""Run recipes one after the other where `mxtree run` is not installed, as on a borrowed machine.

    PYTHONPATH=overlay:MEGATRON:TE python benchmarks/train.py OUT RECIPE[:NAME[:a.b=v,...]] ...

Each run gets its directory under OUT and is supervised as `mxtree run` does it, with the launcher's
environment. Prints a line a run and exits with the number of runs that failed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mxflux.recipe import RecipeError, load
from mxflux.recipe.launch import rundir, supervise
from mxflux.recipe.launch.errors import LaunchError
from mxflux.recipe.launch.plan import make_plan


def run(out: Path, text: str) -> int:
    """Run one recipe and return the exit status of its run."""
    recipe, _, rest = text.partition(":")
    name, _, overrides = rest.partition(":")
    chosen = [*filter(None, overrides.split(",")), *([f"name={name}"] if name else [])]
    loaded = load(Path(recipe), chosen)
    folder = (out / loaded.recipe.name).absolute()
    plan = make_plan(loaded, folder, sys.executable, os.environ)
    if plan.problems:
        raise LaunchError("the run cannot start", details=plan.problems)
    made = {"argv": sys.argv[1:], "world_size": plan.world_size}
    rundir.create(folder, loaded, {**made, "environment_delta": plan.environment.to_json()})
    settings = supervise.Settings(max_restarts=0, console=sys.stdout, notes=sys.stderr)
    environment = plan.environment.apply(os.environ) | {"PYTHONPATH": _search_path()}
    return int(supervise.supervise(folder, plan.argv, environment, settings))


def _search_path() -> str:
    """Return PYTHONPATH with absolute entries; the launcher drops it, for `mxtree run` installs."""
    return os.pathsep.join(os.path.abspath(p) for p in os.environ["PYTHONPATH"].split(os.pathsep))  # noqa: PTH100


def main(out: Path, runs: list[str]) -> int:
    """Run all of them, whatever becomes of each."""
    failed = 0
    for text in runs:
        start = time.monotonic()
        try:
            status = run(out, text)
        except (RecipeError, LaunchError) as error:
            print(f"{error} {getattr(error, 'details', '')}")
            status = 2
        failed += status != 0
        print(f"RUN {text}: exit {status}, {time.monotonic() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
