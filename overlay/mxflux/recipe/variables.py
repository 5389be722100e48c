# SPDX-License-Identifier: Apache-2.0
"""${VAR} and ${VAR:default} in the text of a scalar."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(
    r"\$(?:(?P<escape>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<default>[^{}]*))?\}|(?P<bad>\{))"
)


@dataclass(frozen=True)
class Expanded:
    """Text with its variables replaced, and the names of those that were."""

    text: str
    variables: tuple[str, ...]


class VariableError(ValueError):
    """A variable that is not set, or a reference that cannot be read."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace every reference in ``text``; ``$$`` stands for a dollar sign.

    A variable that is set to nothing counts as not set. Raises VariableError.
    """
    used: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if match["escape"]:
            return "$"
        if match["bad"]:
            raise VariableError(
                f"{text!r} has a ${{ that names no variable",
                "write ${NAME} or ${NAME:default}, not nested; $$ is a dollar sign",
            )
        used.append(match["name"])
        value = environ.get(match["name"]) or match["default"]
        if value is None:
            state = "is empty" if match["name"] in environ else "is not set"
            raise VariableError(
                f"the environment variable {match['name']} {state}",
                f"export {match['name']}=..., or write ${{{match['name']}:default}}",
            )
        return value

    return Expanded(_REFERENCE.sub(replaced, text), tuple(used))
