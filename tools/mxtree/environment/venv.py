# SPDX-License-Identifier: Apache-2.0
"""The virtual environment that `mxtree install` makes; one that is half made never counts."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING

from mxtree.environment import bootstrap, requirements, start
from mxtree.environment.interpreter import inspect
from mxtree.environment.pip import install_packages
from mxtree.environment.pythons import DEFAULT_VERSION, find_python
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.environment.interpreter import Interpreter


def default_location(tree: Path) -> Path:
    """Return ``<tree>.venv`` beside the tree: a build replaces the tree, a venv cannot be moved."""
    return tree.with_name(tree.name + ".venv")


def prepare(folder: Path) -> Interpreter:
    """Return the environment at ``folder`` with every requirement in it, made anew if need be.

    Raises `FatalError` rather than touch a folder that is not an environment of ours, and when no
    Python to make it with is found.
    """
    wanted = _fingerprint()
    if not bootstrap.is_ready(folder, wanted):
        _refuse_foreign(folder)
        _make(folder, find_python())
        target = inspect(python_of(folder))
        install_packages(target, ["-r", str(requirements.FILE)])
        (folder / bootstrap.READY).write_text(wanted, encoding="utf-8")
    return inspect(python_of(folder))


def python_of(folder: Path) -> Path:
    """Return the interpreter of the environment at ``folder``."""
    return folder / "bin" / "python"


def _fingerprint() -> str:
    """Return what an environment has to agree with: the Python version and the requirements."""
    digest = hashlib.sha256(requirements.FILE.read_bytes()).hexdigest()
    return f"{DEFAULT_VERSION} {digest}\n"


def _refuse_foreign(folder: Path) -> None:
    if bootstrap.is_foreign(folder):
        raise FatalError(
            f"{folder} exists and is not an environment that mxtree made",
            hint=f"name another folder with --env; or, to install into an environment that you "
            f"made: mxtree install --python {python_of(folder)}",
        )


def _make(folder: Path, base: Path) -> None:
    print(f"mxtree: making {folder} with {base}", file=sys.stderr)
    bootstrap.empty(folder)
    command = [sys.executable, "-P", "-m", "virtualenv", "--quiet", "--no-periodic-update"]
    process = subprocess.run(
        [*command, "--python", str(base), str(folder)],
        env=start.without_python_path(),
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise FatalError(
            f"no virtual environment could be made at {folder} with {base}",
            details=(process.stdout + process.stderr).splitlines()[-20:],
            code=ExitCode.COULD_NOT_CHECK,
        )
