# SPDX-License-Identifier: Apache-2.0
"""What `mxtree run` says: the plan for people and machines, and notes on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from mxtree.launch import memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxtree.launch.identity import Code

SCHEMA = 1


def note(text: str) -> None:
    """Say one line on standard error."""
    print(f"mxtree: {text}", file=sys.stderr, flush=True)


def as_json(plan: Any, code: Code, start: Any, refusal: str | None, script: str | None) -> str:
    """Return the machine form of a dry run."""
    shown = {
        "schema_version": SCHEMA,
        **plan.to_json(),
        "tree": str(code.tree),
        "tree_digest": code.digest,
        "start": {"kind": start.kind, "step": start.step} if start else None,
        "refused": refusal,
        "memory": memory.as_json(plan),
        "sbatch": script,
        "notes": list(code.notes),
    }
    return json.dumps(shown, indent=2)


def text(plan: Any, code: Code, start: Any, refusal: str | None) -> str:
    """Return the screen of a dry run."""
    return "\n".join(_lines(plan, code, start, refusal))


def _lines(plan: Any, code: Code, start: Any, refusal: str | None) -> Iterator[str]:
    recipe = plan.loaded.recipe
    yield f"{'run':10} {recipe.name} on {recipe.device}"
    yield f"{'tree':10} {code.tree}  {(code.digest or 'not built')[:12]}"
    yield f"{'ranks':10} {_ranks(plan)}"
    yield f"{'batch':10} {plan.batch}"
    yield f"{'training':10} {recipe.schedule.train_iters} steps, {plan.batch.train_samples} samples"
    if stop := _stop(plan, start):
        yield f"{'stop':10} {stop}"
    if plan.batch.evaluation is not None:
        yield f"{'evaluation':10} {plan.batch.evaluation}, every {recipe.evaluation.interval} steps"
    yield f"{'memory':10} {memory.line(plan)}"
    yield from ("", "paths")
    yield from (f"  {name:12} {path}" for name, path in plan.paths().items())
    yield from ("", "command")
    yield f"  {shlex.join(plan.argv(plan.first_logs))}"
    yield from ("", "environment")
    yield from (f"  {change}" for change in plan.environment.changes)
    yield ""
    for line in code.notes:
        yield f"note: {line}"
    if start is not None:
        yield f"nothing was started: {start_line(plan, start)}"
    for problem in (*plan.problems, *([refusal] if refusal else [])):
        yield f"error: {problem}"


def _stop(plan: Any, start: Any) -> str | None:
    """Say at which step schedule.exit_interval ends this attempt, if that is before the last."""
    recipe = plan.loaded.recipe
    interval, last = recipe.schedule.exit_interval, recipe.schedule.train_iters
    if interval is None or plan.fake_world:
        return None
    step = ((start.step if start else None) or 0) // interval * interval + interval
    if step >= last:
        return None
    return (
        f"after step {step}, which is saved (schedule.exit_interval: {interval}); "
        "the same command goes on from there"
    )


def _ranks(plan: Any) -> str:
    launch = plan.loaded.recipe.launch
    if plan.fake_world:
        return f"rank 0 of {plan.world_size}, the others are only imagined"
    if launch.nodes == 1:
        return f"{plan.world_size} on one node"
    return f"{plan.world_size} = {launch.nproc_per_node} a node x {launch.nodes} nodes"


def start_line(plan: Any, start: Any) -> str:
    """Say how a run starts."""
    if start.kind == "new":
        return f"a new run in {plan.run}"
    if start.kind == "finished":
        return f"{plan.run} is finished; --fresh starts it anew, --run-dir elsewhere"
    if start.step is None:
        return f"the same run in {plan.run}, which has no checkpoint yet: from the start"
    return f"the same run in {plan.run}: goes on after step {start.step}"


def environment_notes(plan: Any) -> Iterator[str]:
    """Name every inherited variable that the ranks see otherwise: none changes in silence."""
    for change in plan.environment.changes:
        if change.action in ("replace", "unset"):
            yield f"environment: {change}"
