# SPDX-License-Identifier: Apache-2.0
"""The sequence editor of `mxtree edit`: stop at the first commit of the list."""

from __future__ import annotations

import sys
from pathlib import Path


def stop_at_first(todo: str) -> str:
    """Return a rebase todo list whose first ``pick`` is an ``edit``."""
    return todo.replace("pick ", "edit ", 1)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(stop_at_first(path.read_text(encoding="utf-8")), encoding="utf-8")
