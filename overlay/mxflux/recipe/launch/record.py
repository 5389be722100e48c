# SPDX-License-Identifier: Apache-2.0
"""run.json: what a run is, what it ran in, and its attempts."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from mxflux.recipe.launch.errors import LaunchError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "run.json"
FORMAT = 1


def now() -> str:
    """Return the time as run.json has it: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(run: Path) -> dict[str, Any]:
    """Return the record of a run. Raises LaunchError when it is not one of this format."""
    path = run / FILE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LaunchError(
            f"{run} has no {FILE}: it is not a run directory of mxtree",
            hint="name another folder with --run-dir",
        ) from None
    except ValueError as error:
        raise LaunchError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise LaunchError(f"{path} is not of format {FORMAT}, the only one that is known here")
    return found


def write(run: Path, record: dict[str, Any]) -> None:
    """Replace the record in one step, forced to disk."""
    partial = run / f".{FILE}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(run / FILE)


def begin_attempt(run: Path, argv: list[str], **facts: Any) -> int:
    """Note that an attempt starts, and return its number, from 1.

    Of ``facts`` (versions, environment, ...) an attempt has what differs from the run's own, and
    its tree. A tree that was modified in one attempt was so in the run.
    """
    record = read(run)
    always = {"tree_digest"} & facts.keys()
    facts = {
        key: value for key, value in facts.items() if key in always or record.get(key) != value
    }
    if facts.get("tree_modified"):
        record["tree_modified"] = True
    attempt = {"started": now(), "ended": None, "status": "running", "exit_code": None}
    record["attempts"].append(
        {**attempt, "first_step": None, "reason": None, "argv": argv, **facts}
    )
    record["status"] = "running"
    write(run, record)
    return len(record["attempts"])


def end_attempt(run: Path, **facts: Any) -> None:
    """Note how the newest attempt ended; its status becomes that of the run."""
    record = read(run)
    record["attempts"][-1].update(ended=now(), **facts)
    record["status"] = facts["status"]
    write(run, record)
