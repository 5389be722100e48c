# SPDX-License-Identifier: Apache-2.0
"""Who the user is, from the user's own git configuration: the author of a new patch."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from mxtree.errors import FatalError

if TYPE_CHECKING:
    from pathlib import Path


def author_env(repository: Path) -> dict[str, str]:
    """Return GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL as the user's git has them.

    Raises `FatalError` when git knows no name or address: a patch without an author helps nobody.
    """
    return {
        "GIT_AUTHOR_NAME": _ask(repository, "user.name", "GIT_AUTHOR_NAME"),
        "GIT_AUTHOR_EMAIL": _ask(repository, "user.email", "GIT_AUTHOR_EMAIL"),
    }


def _ask(repository: Path, key: str, variable: str) -> str:
    given = os.environ.get(variable)
    if given:
        return given
    env = {name: value for name, value in os.environ.items() if name not in {"GIT_DIR"}}
    argv = ["git", "-C", str(repository), "config", "--get", key]
    answer = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if not answer.stdout.strip():
        raise FatalError(f"git has no {key}", hint=f"git config --global {key} '...'")
    return answer.stdout.strip()
