# SPDX-License-Identifier: Apache-2.0
"""Import Megatron without Transformer Engine, which fails without its C++ part."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import typing
import warnings
from typing import TYPE_CHECKING

import typing_extensions

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def without_te() -> Iterator[None]:
    """Make ``import transformer_engine`` an ImportError for the length of a with block."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_te(name)}
    sys.modules["transformer_engine"] = None  # type: ignore[assignment]  the import system's "no"
    try:
        yield
    finally:
        del sys.modules["transformer_engine"]
        sys.modules.update(hidden)


def _is_te(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == "transformer_engine"


def lend_override() -> None:
    """Give ``typing`` the ``override`` that it has from Python 3.12 on.

    Stock megatron.training 0.18 and 0.19 imports it, so without it no negative control could run on
    Python 3.11. That the patched one does not need it is shown in processes of their own.
    """
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]


def import_megatron() -> None:
    """Import Megatron's core, and training where the release has it (the sdist of 0.16 does not).

    HAVE_TE is False afterwards, and their warnings are dropped.
    """
    lend_override()
    with without_te(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("megatron.core")
        if importlib.util.find_spec("megatron.training") is not None:
            for name in ("arguments", "training"):
                importlib.import_module(f"megatron.training.{name}")
