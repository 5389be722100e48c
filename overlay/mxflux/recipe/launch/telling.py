# SPDX-License-Identifier: Apache-2.0
"""How an attempt ended, in the words of the rank that ended it, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.recipe.launch import progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxflux.recipe.launch.ranks import Failure

#: Lines of a log that are shown: a traceback; of a killed rank, which has none, what came last.
_TAIL, _TAIL_OF_KILLED = 30, 5


def end_of_log(logs: Path, failure: Failure | None) -> Iterator[str]:
    """Yield the error of the rank that failed, as the trainer says it; else how its log ends."""
    names = [f"rank-{failure.rank}.log"] if failure else ["torchrun.log", "srun.log"]
    count = _TAIL if failure is None or failure.exit_code > 0 else _TAIL_OF_KILLED
    for log in (logs / name for name in names):
        if not log.exists():
            continue
        lines = log.read_text("utf-8", "replace").splitlines()
        error = _error_of(lines, failure)
        yield f"{'error' if error else 'end'} of {log}:"
        for line in error[:_TAIL] or lines[-count:]:
            yield f"  {line}"


def _error_of(lines: list[str], failure: Failure | None) -> list[str]:
    """Return the lines from the trainer's message on; warnings before it are not its error."""
    if failure is None or failure.exit_code < 0:
        return []
    start = f"rank {failure.rank}: error: "
    found = [index for index, line in enumerate(lines) if line.startswith(start)]
    return lines[found[-1] :] if found else []


def next_step(run: Path, *, may_go_better: bool) -> str:
    """Return what to do after an attempt that failed, by itself or by something to mend."""
    step = progress.checkpointed_step(run)
    goes_on = "starts anew" if step is None else f"goes on after step {step}"
    if may_go_better:
        return f"the same command {goes_on}; --max-restarts N does so by itself"
    return f"mend it: the same command {goes_on}, another recipe needs --fresh or a new --run-dir"
