# SPDX-License-Identifier: Apache-2.0
"""The options of a recipe, checked: MXFP4BlockScaling and MXFP6BlockScaling have the same ones."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from mxflux.mx.errors import MXValueError
from mxflux.te.plan import BF16, plan_of

#: Unquantized backward: a recipe has it as an option from TE 2.15 on.
OVERRIDE, OVERRIDE_VARIABLE = "backward_override", "NVTE_BACKWARD_OVERRIDE"
#: Element format of each precision that a recipe can name for its backward, next to "bf16".
PRECISIONS = {
    "mxfp4": "e2m1",
    "mxfp6": "e2m3",
    "mxfp6_e3m2": "e3m2",
    "mxfp8": "e4m3",
    "mxfp8_e5m2": "e5m2",
}


@dataclass(frozen=True)
class Options:
    """What a recipe asks for. fprop, dgrad, wgrad: element formats, or "bf16".

    backward_override is TE's own: with it TE runs the whole backward unquantized.
    """

    recipe: str
    fprop: str
    dgrad: str
    wgrad: str
    scale_mode: str
    use_hadamard: bool
    stochastic_rounding: bool
    weight_block_2d: bool
    backend: str | None
    backward_override: str | None

    @classmethod
    def of(cls, recipe: Any) -> Options:
        """The options of `recipe` as they are now; MXValueError names one without a meaning."""
        _refuse_what_has_no_effect(recipe)
        forward = _forward_format(recipe)
        return cls(
            recipe=type(recipe).__name__,
            fprop=forward,
            dgrad=_backward_format(recipe, "dgrad_precision", forward),
            wgrad=_backward_format(recipe, "wgrad_precision", forward),
            scale_mode=recipe.scale_mode,
            use_hadamard=_flag(recipe, "use_hadamard"),
            stochastic_rounding=_flag(recipe, "stochastic_rounding"),
            weight_block_2d=_flag(recipe, "weight_block_2d"),
            backend=recipe.backend,
            backward_override=getattr(recipe, OVERRIDE, None),
        )


def check_options(recipe: Any) -> None:
    """Raise MXValueError, a ValueError, unless every option of `recipe` has a meaning.

    Whether it can run on this machine is another question: `check_support`.
    """
    options = Options.of(recipe)
    plan_of(options, "emulated")
    if options.backend is not None:
        plan_of(options, options.backend)


def _refuse_what_has_no_effect(recipe: Any) -> None:
    name = type(recipe).__name__
    known = {field.name for field in fields(recipe)}
    for attribute in vars(recipe):
        if attribute not in known and not attribute.startswith("_"):
            raise MXValueError(
                f"{name} has no option {attribute!r}; it has {', '.join(sorted(known))}"
            )
    if recipe.margin != 0:
        raise MXValueError(f"{name}: margin={recipe.margin} has no meaning for E8M0 scales, use 0")
    for option in ("fp8_dpa", "fp8_mha"):
        if getattr(recipe, option):
            raise MXValueError(f"{name}: {option}=True: attention is not quantized, leave it False")
    override = getattr(recipe, OVERRIDE, None)
    for option in ("dgrad_precision", "wgrad_precision", "stochastic_rounding"):
        if override is not None and getattr(recipe, option):
            raise MXValueError(
                f"{name}: {option}={getattr(recipe, option)!r} has no effect with "
                f"{OVERRIDE}={override!r} (or {OVERRIDE_VARIABLE}), which runs the whole backward "
                "unquantized: choose one"
            )
    if OVERRIDE not in known and os.environ.get(OVERRIDE_VARIABLE):
        raise MXValueError(
            f"{name}: {OVERRIDE_VARIABLE}={os.environ[OVERRIDE_VARIABLE]} has no effect in this "
            "release of TransformerEngine, it came with 2.15: unset it"
        )
    alignment = getattr(recipe, "quantization_alignment", 32)
    if alignment % 32:
        raise MXValueError(
            f"{name}: quantization_alignment={alignment} splits groups of 32, use a multiple of 32"
        )
    if recipe.fp8_format.name != "E4M3":
        raise MXValueError(
            f"{name}: fp8_format={recipe.fp8_format.name}: it has no effect and must stay E4M3; "
            "dgrad_precision and wgrad_precision choose the formats of the backward"
        )


def _forward_format(recipe: Any) -> str:
    valid: tuple[str, ...]
    if hasattr(recipe, "fp6_format"):
        option, chosen, valid = "fp6_format", recipe.fp6_format, ("E2M3", "E3M2")
    else:
        option, chosen, valid = "fp4_format", recipe.fp4_format.name, ("E2M1",)
    if chosen not in valid:
        raise _invalid(recipe, option, chosen, valid)
    return str(chosen).lower()


def _backward_format(recipe: Any, option: str, forward: str) -> str:
    precision = getattr(recipe, option)
    if precision is None:
        return forward
    if precision == BF16:
        return BF16
    if precision not in PRECISIONS:
        raise _invalid(recipe, option, precision, (None, *PRECISIONS, BF16))
    return PRECISIONS[precision]


def _flag(recipe: Any, option: str) -> bool:
    value = getattr(recipe, option)
    # Set after construction nothing has coerced it, and "0" would be true.
    if not isinstance(value, bool):
        raise _invalid(recipe, option, value, (True, False))
    return value


def _invalid(recipe: Any, option: str, value: object, valid: tuple[object, ...]) -> MXValueError:
    choices = ", ".join(map(repr, valid))
    return MXValueError(f"{type(recipe).__name__}: {option}={value!r}; valid: {choices}")
