# SPDX-License-Identifier: Apache-2.0
"""Run a module of the overlay in the environment that a tree is installed in.

The tool's own environment has no torch: commands that need it (`run`, `ckpt`, `data`, `sample`,
`bench`) hand over to ``python -m mxflux...`` there.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxtree.environment import start, venv
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Distributions whose versions a run records.
RECORDED = (
    "torch",
    "triton",
    "pytorch-triton-rocm",
    "megatron-core",
    "transformer-engine",
    "mxflux",
    "amd-aiter",
    "numpy",
    "megatron-energon",
    "mlperf-logging",
    "tensorboard",
    "wandb",
)

_PROBE = """
import importlib.metadata as metadata, json, platform, sys
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
note = metadata.distribution("mxflux").read_text("mxtree.json")
versions = {name: version(name) for name in sys.argv[1:]}
found = {"digest": json.loads(note)["digest"] if note else ""}
found["versions"] = {"python": platform.python_version()}
found["versions"].update({name: value for name, value in versions.items() if value})
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Installed:
    """What an environment has: digest of its tree, and versions by distribution."""

    digest: str
    versions: dict[str, str]


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

    Neither PYTHONPATH nor the working directory is searched: what is installed is what runs.
    ``environment`` is added.
    Raises `FatalError` when mxflux is not installed there.
    """
    installed_tree(python)
    command = start.module_command(python, module, arguments)
    return subprocess.run(command, env={**_inherited(), **environment}, check=False).returncode


def installed_tree(python: Path) -> str:
    """Return the digest of the tree that is installed in the environment of ``python``.

    Raises `FatalError` when mxflux is not installed there, or not by `mxtree install`.
    """
    return installed(python).digest


def installed(python: Path) -> Installed:
    """Return what is installed in the environment of ``python``; raises as `installed_tree`."""
    probe = subprocess.run(
        [str(python), "-c", start.NOT_HERE + _PROBE, *RECORDED],
        env=_inherited(),
        capture_output=True,
        text=True,
        check=False,
    )
    found: Any = json.loads(probe.stdout) if probe.returncode == 0 else {}
    if not found.get("digest"):
        raise FatalError(
            f"{python} has no tree of mxtree installed",
            details=probe.stderr.splitlines()[-1:],
            hint=f"./mxtree install --python {python}",
            code=ExitCode.USAGE,
        )
    return Installed(found["digest"], found["versions"])


def _inherited() -> dict[str, str]:
    return start.environment(start.without_python_path())
