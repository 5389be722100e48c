# SPDX-License-Identifier: Apache-2.0
"""The MX recipes on a TransformerEngine without the patches, by overrides at run time.

    import mxflux.te.zero_patch
    mxflux.te.zero_patch.enable()          # before the first module is made

An escape hatch for an image whose TE cannot be replaced. It reaches into private names of TE, which
a release may move without notice; so it knows three releases, tries out afterwards that every
override took, and undoes all of them if one did not. The patched tree is the default and needs
nothing of this. Nothing calls `enable` unless MXFLUX_TE_ZERO_PATCH=1 or you do.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxflux.te.zero_patch.undo import Overrides

VARIABLE = "MXFLUX_TE_ZERO_PATCH"
#: What the overrides were written for and tested on; 2.14 and 2.15 have no policies of extra state.
RELEASES = ("2.17.1", "2.18.0", "2.20.2")
NAMES = ("MXFP4BlockScaling", "MXFP6BlockScaling")
#: Of the checks of `mxflux.te.tree`: what a stock TE of those releases cannot do.
STOCK_LACKS = ("a weight gradient does not reach main_grad", "a module's bias has no gradient")

_log = logging.getLogger(__name__)
_enabled: Overrides | None = None


def wanted() -> bool:
    """Whether the environment asks for it.

    Raises ValueError where the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "0")
    if value not in {"0", "1"}:
        raise ValueError(f"{VARIABLE}={value!r}; valid: 0, 1")
    return value == "1"


def enabled() -> bool:
    """Whether the overrides are in place."""
    return _enabled is not None


def enable() -> None:
    """Override what the patches change. A second call does nothing.

    Raises RuntimeError, and leaves TE as it was, where TE carries some or all of the patches, is of
    a release that the overrides do not know, or does not do afterwards what they are for.
    """
    global _enabled  # noqa: PLW0603 - one process has one TransformerEngine
    if _enabled is not None:
        return
    from mxflux.te import tree

    where = _check_stock()
    from mxflux.te.zero_patch.overrides import override
    from mxflux.te.zero_patch.undo import Overrides

    made = Overrides()
    try:
        override(made)
        tree.forget()
        problems = tree.problems()
        if problems:
            raise RuntimeError(f"zero-patch mode: {where}: still {'; '.join(problems)}")
    except BaseException:
        made.undo()
        tree.forget()
        raise
    _enabled = made
    _log.warning("zero-patch mode: %d overrides of %s at run time", len(made), where)


def disable() -> None:
    """Take every override back. Modules that were made in between keep what they have."""
    global _enabled  # noqa: PLW0603
    from mxflux.te import tree

    if _enabled is not None:
        _enabled.undo()
        _enabled = None
        tree.forget()


def _check_stock() -> str:
    """Which TE this is; RuntimeError unless it is a stock one of a known release."""
    from mxflux.te import tree

    te = importlib.import_module("transformer_engine")
    recipes = importlib.import_module("transformer_engine.common.recipe")
    version = importlib.import_module("importlib.metadata").version("transformer-engine")
    where = f"TransformerEngine {version} ({te.__file__})"
    there = [name for name in NAMES if hasattr(recipes, name)]
    problems = tree.problems()
    if there and not problems:
        raise RuntimeError(
            f"zero-patch mode: {where} has {' and '.join(there)} already, with all that they rely "
            f"on: do not call enable(), unset {VARIABLE}"
        )
    done = [lack for lack in STOCK_LACKS if lack not in problems]
    if there or done:
        found = [f"it has {name}" for name in there] + [f"mended: {lack!r}" for lack in done]
        found += [f"not mended: {problem!r}" for problem in problems]
        raise RuntimeError(
            f"zero-patch mode: {where} is half patched ({'; '.join(found)}): put a stock release "
            "first on PYTHONPATH, or a whole tree (`mxtree build`)"
        )
    if version.split("+")[0] not in RELEASES:
        raise RuntimeError(
            f"zero-patch mode: the overrides do not know {where}; they know "
            f"{', '.join(RELEASES)}: use the patched tree (`mxtree build`)"
        )
    return where
