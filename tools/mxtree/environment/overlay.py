# SPDX-License-Identifier: Apache-2.0
"""Import the parts of mxflux that need no torch (recipes, launch) into the tool itself."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from mxtree.errors import FatalError

if TYPE_CHECKING:
    from pathlib import Path


def use_overlay(folder: Path, *needs: str) -> None:
    """Put ``folder`` (of a tree, or of the checkout) first on the import path.

    Raises `FatalError` when one of the modules ``needs`` is not in it: a tree may be older than the
    tool.
    """
    if not (folder / "mxflux" / "__init__.py").is_file():
        raise FatalError(f"{folder} has no package mxflux", hint="./mxtree build")
    if "mxflux" not in sys.modules:
        sys.path.insert(0, str(folder))
    for name in needs:
        if not _is_there(name):
            raise FatalError(
                f"{folder} has no {name}: the tree is older than this mxtree",
                hint="./mxtree build && ./mxtree install",
            )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even its package
        return False
