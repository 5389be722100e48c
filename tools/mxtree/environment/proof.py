# SPDX-License-Identifier: Apache-2.0
"""Prove that an environment would import the tree and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mxtree.environment.distributions import Distribution
    from mxtree.environment.interpreter import Interpreter


def modules(distributions: Sequence[Distribution]) -> list[str]:
    """Return the modules whose location `check` looks at."""
    return [distribution.module for distribution in distributions]


def check(
    target: Interpreter, distributions: Sequence[Distribution], versions: Mapping[str, str]
) -> None:
    """Compare what ``target`` would import with the tree, and its metadata with ``versions``.

    Raises `FatalError` naming each module that comes from elsewhere and each wrong version.
    """
    wrong = [
        *filter(None, (_location(target, distribution) for distribution in distributions)),
        *filter(None, (_version(target, name, wanted) for name, wanted in versions.items())),
    ]
    if wrong:
        raise FatalError(
            f"the tree is installed in {target.python}, but something else is in effect",
            details=wrong,
            hint="look at PYTHONPATH and for copies in the environment's site-packages",
            code=ExitCode.CHECK_FAILED,
        )


def _location(target: Interpreter, distribution: Distribution) -> str | None:
    found = target.modules.get(distribution.module)
    if found is not None and Path(found).resolve().is_relative_to(distribution.root.resolve()):
        return None
    where = f"comes from {found}" if found else "cannot be imported"
    return f"{distribution.module} {where}, not from {distribution.root}"


def _version(target: Interpreter, name: str, wanted: str) -> str | None:
    found = target.distributions.get(name)
    if found is not None and found.version == wanted:
        return None
    return f"{name} is {found.version if found else 'not installed'}, not {wanted}"
