# SPDX-License-Identifier: Apache-2.0
"""Look into a Python environment from outside, without importing anything of it here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from mxtree.environment import start
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The oldest Python of the training images; the overlay is written for it.
MINIMUM_VERSION = (3, 10)

_PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Installed:
    """One installed distribution; ``note`` is the content of its mxtree.json when it is ours."""

    name: str
    version: str
    location: Path
    note: dict[str, str] | None

    @property
    def is_ours(self) -> bool:
        """Return whether mxtree put it there."""
        return self.note is not None

    def __str__(self) -> str:
        return f"{self.name} {self.version} in {self.location}"


@dataclass(frozen=True)
class Interpreter:
    """A Python environment as it sees itself. Distributions go by their canonical name."""

    python: Path
    version: str
    purelib: Path
    externally_managed: bool
    modules: dict[str, str | None]
    distributions: dict[str, Installed]


def inspect(python: Path, modules: Sequence[str] = ()) -> Interpreter:
    """Return what ``python`` has installed and where it would import ``modules`` from.

    The folders of the user's PYTHONPATH count, the working directory does not. Raises
    `FatalError` when ``python`` does not run or is too old.
    """
    facts = _run_probe(python, modules)
    version = tuple(facts["version"])
    if version < MINIMUM_VERSION:
        raise FatalError(
            f"{python} is Python {'.'.join(map(str, version))}; the tree needs "
            f"{'.'.join(map(str, MINIMUM_VERSION))} or newer",
        )
    distributions: dict[str, Installed] = {}
    for item in facts["distributions"]:  # in the order of sys.path: the first is the one in effect
        found = Installed(item["name"], item["version"], Path(item["location"]), item["note"])
        distributions.setdefault(canonicalize_name(found.name), found)
    return Interpreter(
        python=python,
        version=".".join(map(str, version)),
        purelib=Path(facts["purelib"]),
        externally_managed=facts["externally_managed"],
        modules=facts["modules"],
        distributions=distributions,
    )


def _run_probe(python: Path, modules: Sequence[str]) -> Any:
    if not os.access(python, os.X_OK) or python.is_dir():
        found = shutil.which(str(python)) if python.parent == Path() else None
        if found is None:
            raise FatalError(
                f"{python} is not a program",
                hint="name the interpreter itself: --python /path/to/environment/bin/python",
            )
        python = Path(found)
    env = {**start.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        [python, _PROBE, *modules], env=env, capture_output=True, text=True, check=False
    )
    try:
        return json.loads(process.stdout)
    except ValueError as error:
        raise FatalError(
            f"{python} did not answer as a Python interpreter does (status {process.returncode})",
            details=process.stderr.splitlines()[-10:],
            code=ExitCode.COULD_NOT_CHECK,
        ) from error
