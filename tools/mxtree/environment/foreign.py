# SPDX-License-Identifier: Apache-2.0
"""What is already installed under the names of our distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Collection

    from mxtree.environment.interpreter import Interpreter

#: The distributions of a tree, by canonical name.
NAMES = ("megatron-core", "transformer-engine", "mxflux")


def check_names(names: Collection[str], option: str) -> frozenset[str]:
    """Return ``names`` as a set. Raises `FatalError` when one is not a distribution of a tree."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise FatalError(
            f"{option} {unknown[0]}: a tree has no such distribution",
            hint=f"its distributions are {', '.join(NAMES)}",
        )
    return frozenset(names)


def to_remove(
    target: Interpreter, *, without: Collection[str], replace: Collection[str]
) -> list[str]:
    """Return the distributions that have to go before ours are installed.

    Those of ours that are not wanted any more (``without``), and foreign ones that the user gave up
    (``replace``). Raises `FatalError` that names every other foreign one.
    """
    installed = [(name, target.distributions.get(name)) for name in NAMES]
    present = [(name, found) for name, found in installed if found is not None]
    in_the_way = [
        (name, found)
        for name, found in present
        if not found.is_ours and name not in without and name not in replace
    ]
    if in_the_way:
        example = in_the_way[0][0]
        raise FatalError(
            f"{target.python} has distributions that mxtree did not install",
            details=[str(found) for _, found in in_the_way],
            hint=f"give one up with --replace {example}, or keep it and leave the tree's out with "
            f"--without {example}",
            code=ExitCode.CHECK_FAILED,
        )
    return [
        name
        for name, found in present
        if (found.is_ours and name in without) or (not found.is_ours and name in replace)
    ]
