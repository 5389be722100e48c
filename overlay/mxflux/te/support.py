# SPDX-License-Identifier: Apache-2.0
"""Can a recipe run here: asked by TE whenever autocast is entered."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from mxflux.mx.backends import BACKENDS, backend_named
from mxflux.te.options import Options
from mxflux.te.plan import DIRECTIONS, Plan, plan_of

#: Environment variable that the recipes read where no backend is named.
BACKEND_VARIABLE = "MXFLUX_GEMM_BACKEND"

#: By id, the recipes that quantizers were made from and their options at that time. Recipes
#: compare by value and so have no hash.
_in_use: dict[int, tuple[weakref.ref[Any], Options]] = {}


def check_support(recipe: Any) -> tuple[bool, str]:
    """(True, "") if every GEMM of `recipe` can run here, else (False, what is missing).

    Raises ValueError if an option was set to something without a meaning after construction.
    """
    options = Options.of(recipe)
    why = _no_backend() if options.backend is None else _missing(options, options.backend)
    if why is None:
        why = _change(recipe, options)
    return why is None, "" if why is None else f"{options.recipe}: {why}"


def plan_in_use(recipe: Any) -> Plan:
    """The plan of `recipe`, which from now on must not change: quantizers are made from it.

    Raises RuntimeError if the recipe cannot run, or changed after its first quantizer was made.
    """
    supported, why = check_support(recipe)
    if not supported:
        raise RuntimeError(why)
    options, key = Options.of(recipe), id(recipe)
    if key not in _in_use:
        _in_use[key] = (weakref.ref(recipe, lambda _: _in_use.pop(key, None)), options)
    return plan_of(options, recipe.backend)


def _no_backend() -> str:
    return (
        f"no GEMM backend is chosen: pass backend=, or set {BACKEND_VARIABLE}, to one of "
        f"{', '.join(BACKENDS)}; `python -m mxflux.mx.doctor` lists what runs here"
    )


def _missing(options: Options, name: str) -> str | None:
    plan, backend = plan_of(options, name), backend_named(name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    why = backend.missing(device)
    for direction in DIRECTIONS:
        gemm = plan.gemm(direction)
        if why is None and gemm.backend and gemm.format not in backend.FORMATS:
            why = f"it has no {gemm.format} for {direction}; it has {', '.join(backend.FORMATS)}"
    return None if why is None else f"GEMM backend {name!r}: {why}"


def _change(recipe: Any, options: Options) -> str | None:
    known = _in_use.get(id(recipe))
    if known is None or known[1] == options:
        return None
    before, after = vars(known[1]), vars(options)
    changes = [f"{k}: {before[k]} -> {after[k]}" for k in after if before[k] != after[k]]
    return (
        f"it was changed ({', '.join(changes)}) after modules made quantizers from it, and they "
        "would go on as before: use a new recipe, dataclasses.replace(recipe, ...)"
    )
