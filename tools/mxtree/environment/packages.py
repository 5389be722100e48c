# SPDX-License-Identifier: Apache-2.0
"""The packages around a tree in an environment that is not ours: look, and hardly ever touch."""

from __future__ import annotations

import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.environment import pip, requirements
from mxtree.environment.interpreter import inspect
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from mxtree.environment.interpreter import Installed, Interpreter


class Policy(Enum):
    """What to do about packages that the tree needs and the environment lacks."""

    CHECK = "check"
    INSTALL = "install"
    IGNORE = "ignore"


def policy(*, with_deps: bool, no_deps: bool) -> Policy:
    """Return the policy that two options ask for. Raises `FatalError` when they contradict."""
    if with_deps and no_deps:
        raise FatalError("--with-deps and --no-deps contradict each other")
    if with_deps:
        return Policy.INSTALL
    return Policy.IGNORE if no_deps else Policy.CHECK


def ensure(target: Interpreter, policy: Policy) -> None:
    """See to it that ``target`` has what a tree needs, as ``policy`` allows.

    torch and triton are the machine's: they are never installed, and nothing that is installed
    already changes its version. Raises `FatalError` that lists what is missing.
    """
    if policy is Policy.IGNORE:
        return
    lacking = missing(target)
    machine = [r for r in lacking if r.name in requirements.MACHINE_OWNED]
    if machine or (lacking and policy is Policy.CHECK):
        raise FatalError(
            f"{target.python} lacks packages that the tree needs",
            details=[str(requirement) for requirement in lacking],
            hint=_how(machine),
            code=ExitCode.CHECK_FAILED,
        )
    if lacking:
        _install(target, lacking)


def missing(target: Interpreter) -> list[Requirement]:
    """Return the requirements for which nothing is there to import.

    Modules are looked for, not distributions: a container may have built its own. Versions count
    only where the environment is ours.
    """
    wanted = requirements.read()
    found = inspect(target.python, [requirements.module(item) for item in wanted]).modules
    return [item for item in wanted if found[requirements.module(item)] is None]


def _how(machine: list[Requirement]) -> str:
    if machine:
        names = " and ".join(requirement.name for requirement in machine)
        return f"install the {names} that is built for this machine; mxtree never does"
    return "run the same command with --with-deps, or install them yourself"


def _install(target: Interpreter, lacking: list[Requirement]) -> None:
    before = {name: found.version for name, found in target.distributions.items()}
    pins = "".join(f"{name}=={version}\n" for name, version in sorted(before.items()))
    with tempfile.TemporaryDirectory(prefix="mxtree-pins-") as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text(pins, encoding="utf-8")
        arguments = ["--constraint", str(constraints), *(str(item) for item in lacking)]
        pip.install_packages(target, arguments)
    after = inspect(target.python).distributions
    changed = [name for name, version in before.items() if _version(after, name) != version]
    if changed:
        raise FatalError(
            f"pip changed packages of {target.python} although they were pinned",
            details=[f"{n}: {before[n]} became {_version(after, n)}" for n in changed],
            code=ExitCode.CHECK_FAILED,
        )


def _version(installed: dict[str, Installed], name: str) -> str:
    found = installed.get(name)
    return found.version if found else "nothing"
