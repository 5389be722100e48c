# SPDX-License-Identifier: Apache-2.0
"""`mxtree` as a process of its own, to be run, killed, or run twice at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from workshop import Workshop

TOOLS = Path(__file__).parents[3] / "tools"


@contextmanager
def start(
    workshop: Workshop, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run `mxtree` in the workshop's project, in a process group that ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mxtree", *args],
        cwd=workshop.root,
        env={"PYTHONPATH": str(TOOLS), **os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run(
    workshop: Workshop, *args: str, code: int = 0, env: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Run `mxtree` to its end, check its exit status, and return stdout and stderr."""
    with start(workshop, *args, env=env) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, f"status {process.returncode}\n{out}\n{err}"
    return out, err


def fetched(
    workshop: Workshop, *args: str, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return what `mxtree fetch --json` prints."""
    found: list[dict[str, Any]] = json.loads(run(workshop, "fetch", *args, "--json", env=env)[0])
    return found
