# SPDX-License-Identifier: Apache-2.0
"""Run pip in an environment: for packages of the index, and for our own wheels alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from mxtree.cache import is_offline
from mxtree.environment import start
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mxtree.environment.interpreter import Interpreter


def install_packages(target: Interpreter, arguments: Sequence[str]) -> None:
    """Install packages from the index that pip is configured with.

    ``arguments`` are pip's: requirements, ``-r FILE``, ``-c FILE``. Raises `FatalError` when pip
    fails (its output has been shown), and without trying when MXTREE_OFFLINE is set.
    """
    if is_offline():
        raise FatalError(
            "MXTREE_OFFLINE is set, and packages would have to be fetched from the package index",
            hint="unset MXTREE_OFFLINE, or install into an environment that has them (--python)",
            code=ExitCode.COULD_NOT_CHECK,
        )
    status, _ = _run(target, ["install", *arguments], os.environ, show=True)
    if status:
        raise FatalError(
            f"pip could not install the packages (status {status}, its output is above)",
            hint="check the network and pip's configuration, then run the same command again",
            code=ExitCode.COULD_NOT_CHECK,
        )


def install_wheels(target: Interpreter, folder: Path, pinned: Sequence[str]) -> None:
    """Install the wheels in ``folder`` that ``pinned`` (``name==version``) names, and nothing else.

    Installed by name, so that pip keeps the direct_url.json that is in them. No index, no
    dependency and no configuration of the user's takes part.
    """
    options = ["--no-deps", "--no-index", "--force-reinstall", "--ignore-requires-python"]
    _run_alone(target, ["install", *options, "--find-links", str(folder), *pinned])


def uninstall(target: Interpreter, names: Sequence[str]) -> None:
    """Remove distributions. Does nothing when there are none to remove."""
    if names:
        _run_alone(target, ["uninstall", "--yes", *names])


def _run_alone(target: Interpreter, arguments: Sequence[str]) -> None:
    kept = ("PIP_BREAK_SYSTEM_PACKAGES", "PIP_ROOT_USER_ACTION")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_") or k in kept}
    env["PIP_CONFIG_FILE"] = os.devnull
    status, output = _run(target, arguments, env, show=False)
    if status:
        raise FatalError(
            f"pip failed in {target.python} (status {status})",
            details=output.splitlines()[-20:],
            code=ExitCode.COULD_NOT_CHECK,
        )


def _run(
    target: Interpreter, arguments: Sequence[str], env: Mapping[str, str], *, show: bool
) -> tuple[int, str]:
    """Run the environment's own pip, or ours on it; ``show`` passes the output on to stderr."""
    pip = start.module_command(target.python, "pip")
    if "pip" not in target.distributions:
        pip = [sys.executable, "-P", "-m", "pip", "--python", str(target.python)]
    # What PYTHONPATH adds is not the environment's: pip must neither count nor remove it.
    env = start.without_python_path(env)
    process = subprocess.run(
        [*pip, "--disable-pip-version-check", "--no-input", *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout or ""
