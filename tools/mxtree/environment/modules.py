# SPDX-License-Identifier: Apache-2.0
"""Run a module of the overlay in the environment that a tree is installed in.

The tool's own environment has no torch: commands that need it (`run`, `ckpt`, `data`, `sample`,
`bench`) hand over to ``python -m mxflux...`` there.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.environment import venv
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PROBE = """
import importlib.metadata, json
note = importlib.metadata.distribution("mxflux").read_text("mxtree.json")
print(json.loads(note)["digest"] if note else "")
"""


def find_python(tree: Path, python: Path | None = None) -> Path:
    """Return the interpreter to run in: ``python`` when given, else that of `mxtree install`.

    Raises `FatalError` when there is none, with the command that makes it.
    """
    found = python.absolute() if python else venv.python_of(venv.default_location(tree))
    if found.exists():
        return found
    if python:
        raise FatalError(f"{python} does not exist", hint="name an interpreter with --python")
    raise FatalError(
        f"the tree {tree} is not installed: {found} does not exist",
        hint="./mxtree build && ./mxtree install    (or name an environment with --python)",
    )


def run_module(
    python: Path, module: str, arguments: Sequence[str], *, environment: Mapping[str, str] = {}
) -> int:
    """Run ``python -m module arguments`` on this terminal and return its exit status.

    PYTHONPATH is not handed on: what is installed is what runs. ``environment`` is added.
    Raises `FatalError` when mxflux is not installed there.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    installed_tree(python)
    command = [str(python), "-m", module, *arguments]
    return subprocess.run(command, env={**inherited, **environment}, check=False).returncode


def installed_tree(python: Path) -> str:
    """Return the digest of the tree that is installed in the environment of ``python``.

    Raises `FatalError` when mxflux is not installed there, or not by `mxtree install`.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    probe = subprocess.run(
        [str(python), "-c", _PROBE], env=inherited, capture_output=True, text=True, check=False
    )
    digest = probe.stdout.strip()
    if probe.returncode or not digest:
        raise FatalError(
            f"{python} has no tree of mxtree installed",
            details=probe.stderr.splitlines()[-1:],
            hint=f"./mxtree install --python {python}",
            code=ExitCode.USAGE,
        )
    return digest
