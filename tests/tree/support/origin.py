# SPDX-License-Identifier: Apache-2.0
"""Which upstream code is under test: a control run must never see patched code, nor the reverse.

``MXTREE_TREE`` names the directory that holds ``megatron-lm/`` and ``transformer-engine/``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

FOLDERS = {"megatron.core": "megatron-lm", "transformer_engine": "transformer-engine"}
_BY_ROOT = {name.split(".", maxsplit=1)[0]: folder for name, folder in FOLDERS.items()}
_OTHERS_IN_THEIR_NAMESPACE = "megatron.energon"  # a distribution of its own


class WrongTreeError(Exception):
    """Code under test was, or would be, imported from outside the tree under test."""


def tree() -> Path | None:
    """The resolved ``MXTREE_TREE``, None when it is not set."""
    value = os.environ.get("MXTREE_TREE", "")
    return Path(value).resolve() if value else None


def locate(name: str) -> Path | None:
    """The file that ``import name`` would run, found without running it; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # no parent package; a stand-in without a spec
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def describe() -> list[str]:
    """Header lines: what is under test and where it comes from."""
    root = tree()
    lines = [f"tree under test: {root or 'MXTREE_TREE is not set'}"]
    for name in (*FOLDERS, "mxflux"):
        path = locate(name)
        lines.append(f"{name}: {path.parent if path else 'not importable'}")
    return lines


def check_importable() -> None:
    """Check that what would be imported lies in ``MXTREE_TREE``, when that is set.

    Raises:
        WrongTreeError: megatron.core is missing, or one of them lies elsewhere.
    """
    root = tree()
    if root is None:
        return
    for name, folder in FOLDERS.items():
        path = locate(name)
        if path is None and name != "megatron.core":
            continue
        if path is None or not path.is_relative_to((root / folder).resolve()):
            raise WrongTreeError(
                f"{name} comes from {path}, but MXTREE_TREE={root}: put {root / folder} first on "
                "PYTHONPATH."
            )


def check_imported() -> None:
    """Check that what was imported, in this process, came from ``MXTREE_TREE``, when that is set.

    Raises:
        WrongTreeError: naming the first module from elsewhere.
    """
    root = tree()
    if root is None:
        return
    for name, module in sorted(sys.modules.items()):
        folder = _BY_ROOT.get(name.split(".", maxsplit=1)[0])
        file = getattr(module, "__file__", None)
        if not folder or not file or name.startswith(_OTHERS_IN_THEIR_NAMESPACE):
            continue
        if not Path(file).resolve().is_relative_to((root / folder).resolve()):
            raise WrongTreeError(f"{name} was imported from {file}, not from {root / folder}.")
