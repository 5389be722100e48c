# SPDX-License-Identifier: Apache-2.0
"""Import Megatron without Transformer Engine, which fails without its C++ part."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from typing import TYPE_CHECKING

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


def import_megatron() -> None:
    """Import Megatron's core and training, with HAVE_TE False and their warnings dropped."""
    with without_te(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("megatron.core", "megatron.training.arguments", "megatron.training.training"):
            importlib.import_module(name)
