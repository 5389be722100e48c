# SPDX-License-Identifier: Apache-2.0
"""An sbatch script for a run, with the reason of every setting."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.launch.plan import LaunchPlan

#: Seconds before the time limit at which the ranks are asked to save and stop; or half of it.
NOTICE_S = 600


def script(plan: LaunchPlan) -> str:
    """Return the script; its paths are absolute, so it can be submitted from anywhere."""
    lines = ["#!/bin/bash", "# SPDX-License-Identifier: Apache-2.0"]
    lines += [f"# Written by mxtree for the run {plan.loaded.recipe.name}.", ""]
    for reason, line in _options(plan):
        lines += [f"# {reason}", f"#SBATCH {line}"]
    lines += [
        "",
        "# Stop at the first command that fails, and at a variable that is not set.",
        "set -eu",
        "",
    ]
    lines += _environment(plan)
    lines += [
        "# No code is taken from the folder that this is submitted from (Python 3.10 would).",
        f"cd {shlex.quote(str(plan.run))}",
        "# One supervisor for all attempts: it starts torchrun (with srun on many nodes), hands",
        "# the signal above to the ranks, and restarts from the newest checkpoint. exec: the",
        "# signal reaches it and not a shell.",
        f"exec {shlex.join([plan.python, '-m', 'mxflux.recipe.launch.job', str(plan.run)])}",
        "",
    ]
    return "\n".join(lines)


def _options(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    recipe = plan.loaded.recipe
    slurm = recipe.launch.slurm
    yield "Name in squeue: that of the run.", f"--job-name={recipe.name}"
    yield "Nodes: launch.nodes.", f"--nodes={recipe.launch.nodes}"
    yield "One task a node: torchrun starts the ranks there.", "--ntasks-per-node=1"
    if slurm.cpus_per_task is not None:
        yield (
            "launch.slurm.cpus_per_task.",
            f"--cpus-per-task={slurm.cpus_per_task}",
        )
    else:
        yield "The whole node: launch.slurm.cpus_per_task is not set.", "--exclusive"
    if slurm.gpus_per_node is not None:
        yield (
            "launch.slurm.gpus_per_node.",
            f"--gpus-per-node={slurm.gpus_per_node}",
        )
    if slurm.partition is not None:
        yield "Queue: launch.slurm.partition.", f"--partition={slurm.partition}"
    if slurm.account is not None:
        yield "Account to charge: launch.slurm.account.", f"--account={slurm.account}"
    if slurm.qos is not None:
        yield "Quality of service: launch.slurm.qos.", f"--qos={slurm.qos}"
    if slurm.time_limit_minutes is not None:
        yield "Minutes: launch.slurm.time_limit_minutes.", f"--time={slurm.time_limit_minutes}"
    limit = slurm.time_limit_minutes
    notice = NOTICE_S if limit is None else min(NOTICE_S, 30 * limit)
    yield (
        f"SIGTERM to this script alone, {notice} s before the limit: the ranks save and stop.",
        f"--signal=B:TERM@{notice}",
    )
    logs = shlex.quote(str(plan.run / "logs").replace("%", "%%"))
    yield "Output of this script.", f"--output={logs}/slurm-%j.log"
    yield "One log over all submissions of the run.", "--open-mode=append"
    yield "Not started again by Slurm: the supervisor does, from a checkpoint.", "--no-requeue"
    for option in slurm.extra:
        yield "launch.slurm.extra.", option


def _environment(plan: LaunchPlan) -> Iterator[str]:
    """Yield the variables that do not depend on where the script is submitted from."""
    yield "# What `mxtree install` proved is what runs."
    yield "unset PYTHONPATH"
    for change in plan.environment.changes:
        if change.action in ("set", "replace"):
            yield f"# {change.reason}."
            yield f"export {change.name}={shlex.quote(str(change.value))}"
    yield "# The supervisor removes what else the node presets (NVTE_*, AITER_*, ...)."
    yield ""
