# SPDX-License-Identifier: Apache-2.0
"""MXFP4BlockScaling and MXFP6BlockScaling as the patches define them, made on a stock TE."""

from __future__ import annotations

import os
from dataclasses import field, fields
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

import mxflux.te

#: Type and default of the options that both have; see the docstring in patch 0005.
SHARED: dict[str, tuple[Any, Any]] = {
    "margin": (int, 0),
    "use_hadamard": (bool, False),
    "stochastic_rounding": (bool, False),
    "dgrad_precision": (str | None, None),
    "wgrad_precision": (str | None, None),
    "scale_mode": (str, "even"),
    "weight_block_2d": (bool, False),
}


def make(module: Any) -> dict[str, type]:
    """Both classes by name, bound to `module`, which is transformer_engine.common.recipe.

    TE's policies of extra state go by module and name of a recipe's class.
    """
    options = {
        **SHARED,
        "fp8_format": (module.Format, module.Format.E4M3),
        "backend": (
            str | None,
            field(default_factory=lambda: os.getenv("MXFLUX_GEMM_BACKEND")),
        ),
    }
    if "quantization_alignment" in {f.name for f in fields(module.CustomRecipe)}:
        options["quantization_alignment"] = (int, 32)
    hadamard = field(default_factory=lambda: os.getenv("NVTE_MXFP4_USE_HADAMARD", "0") == "1")
    four = {"fp4_format": (module.Format, module.Format.E2M1), "use_hadamard": (bool, hadamard)}
    six = {"fp6_format": (str, "E2M3"), "scale_mode": (str, "floor")}
    return {
        "MXFP4BlockScaling": _recipe(module, "MXFP4BlockScaling", {**options, **four}),
        "MXFP6BlockScaling": _recipe(module, "MXFP6BlockScaling", {**options, **six}),
    }


def _recipe(module: Any, name: str, options: dict[str, tuple[Any, Any]]) -> type:
    base = module.CustomRecipe

    def post_init(self: Any) -> None:
        base.__post_init__(self)
        mxflux.te.check_options(self)

    def check_support(self: Any) -> tuple[bool, str]:
        return mxflux.te.check_support(self)

    def qfactory(self: Any, role: Any = None) -> Any:
        return mxflux.te.make_quantizer(self, role)

    def _make_repr(self: Any) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return f"recipe_type={type(self).__name__}, {shown}"

    body: dict[str, Any] = {
        "__module__": module.__name__,
        "__doc__": "See patch 0005 of mxtree.",
        "__annotations__": {
            "qfactory": ClassVar[Any],
            **{option: kind for option, (kind, _) in options.items()},
        },
        **{option: default for option, (_, default) in options.items()},
        "qfactory": qfactory,
        "__post_init__": post_init,
        "check_support": check_support,
        "_make_repr": _make_repr,
    }
    made: type = dataclass(type(name, (base,), body), repr=False, config={"extra": "forbid"})
    return made
