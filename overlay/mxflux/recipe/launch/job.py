# SPDX-License-Identifier: Apache-2.0
"""``python -m mxflux.recipe.launch.job RUN``: supervise a run inside its Slurm job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from mxflux.recipe import RecipeError, load
from mxflux.recipe.launch import record, supervise
from mxflux.recipe.launch.errors import LaunchError
from mxflux.recipe.launch.node import Node, ThroughSrun
from mxflux.recipe.launch.plan import make_plan
from mxflux.recipe.launch.rundir import RECIPE


def main(run: Path) -> int:
    """Run the attempts and return the exit status of the job."""
    loaded = load(run / RECIPE)
    plan = make_plan(loaded, run, sys.executable, os.environ)
    if plan.problems:
        raise LaunchError("the run cannot start", details=plan.problems)
    tree = installed_tree()
    _check_tree(run, tree)
    for change in plan.environment.changes:
        print(change, flush=True)
    head, job = first_node(os.environ), os.environ.get("SLURM_JOB_ID", "0")
    settings = supervise.Settings(
        max_restarts=loaded.recipe.launch.max_restarts,
        console=sys.stdout,
        notes=sys.stderr,
        node=ThroughSrun if loaded.recipe.launch.nodes > 1 else Node,
    )
    return supervise.supervise(
        run,
        lambda logs: plan.argv(logs, head=head, job=job),
        plan.environment.apply(os.environ),
        settings,
        tree_digest=tree,
        environment_delta=plan.environment.to_json(),
    )


def installed_tree() -> str | None:
    """Return the digest of the tree that `mxtree install` noted in this environment."""
    note = metadata.distribution("mxflux").read_text("mxtree.json")
    return str(json.loads(note)["digest"]) if note else None


def _check_tree(run: Path, tree: str | None) -> None:
    """Raise LaunchError when another tree was installed while the job waited in the queue."""
    wanted = record.read(run).get("tree_digest")
    if wanted and tree != wanted:
        raise LaunchError(
            f"{run} was submitted with the tree {wanted[:12]}, and {str(tree)[:12]} is installed",
            hint="install that tree again, or submit anew with --slurm --submit --resume",
        )


def first_node(environ: os._Environ[str]) -> str:
    """Return the host of the rendezvous: the job's first node, by Slurm's own expansion."""
    names = environ.get("SLURM_JOB_NODELIST")
    if not names:
        return "127.0.0.1"
    command = ["scontrol", "show", "hostnames", names]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return shown.stdout.split()[0]


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except LaunchError as error:
        print(f"mxtree: {error.text()}", file=sys.stderr)
        sys.exit(error.code)
    except (RecipeError, OSError, subprocess.CalledProcessError) as error:
        print(f"mxtree: error: {error}", file=sys.stderr)
        sys.exit(2)
