# SPDX-License-Identifier: Apache-2.0
"""Count what TE's linear layers really ran, and refuse a step that was not what the recipe says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mxflux.mx import tally as mx_tally
from mxflux.mx.errors import PrecisionError
from mxflux.te.options import Options
from mxflux.te.plan import DIRECTIONS, plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


@contextlib.contextmanager
def census(model: torch.nn.Module) -> Iterator[mx_tally.Census]:
    """Count inside the block; the TE linears of `model` are expected to run, by qualified name.

    Modules are named for the quantizers that they make from now on, and those they have.
    Raises PrecisionError where `model` has no TE linear.
    """
    names: list[str] = []
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if _is_linear(module):
                names += _name(module, name)
                if not hasattr(module, "get_quantizer_roles"):
                    stack.enter_context(_named_when_made(module, name))
        if not names:
            raise PrecisionError("census: the model has no TransformerEngine linear")
        opened = stack.enter_context(mx_tally.census())
        opened.expected = tuple(names)
        yield opened


def check_census(
    opened: mx_tally.Census,
    recipe: Any,
    steps: int = 1,
    directions: Sequence[str] = DIRECTIONS,
) -> None:
    """Raise PrecisionError unless every linear ran `steps` times just as `recipe` plans it.

    That is one GEMM in each of `directions` (("fprop",) in evaluation) a step and linear, in its
    format and on its backend, and nothing else. Under `backward_override` the backward is TE's and
    not expected. A first layer whose input needs no gradient, a frozen weight and an activation
    checkpoint break the rule on purpose: judge `opened.gemms` itself there.
    """
    options = Options.of(recipe)
    plan = plan_of(options, recipe.backend)
    if options.backward_override is not None:
        directions = [d for d in directions if d == "fprop"]
    gemms = [(d, plan.gemm(d).format, plan.gemm(d).backend or "torch") for d in directions]
    wanted = {(name, *gemm): steps for name in opened.expected for gemm in gemms}
    found = dict(opened.gemms)
    lines = [
        f"  {' | '.join(key)}: {found.get(key, 0)} instead of {wanted.get(key, 0)}"
        for key in sorted(wanted.keys() | found.keys())
        if wanted.get(key, 0) != found.get(key, 0)
    ]
    if lines:
        raise PrecisionError("census: GEMMs that differ from the recipe's:\n" + "\n".join(lines))


def _is_linear(module: torch.nn.Module) -> bool:
    return hasattr(module, "quantizers") and (
        hasattr(module, "weight_names") or hasattr(module, "fc1_weight")
    )


@contextlib.contextmanager
def _named_when_made(module: Any, name: str) -> Iterator[None]:
    """Name the quantizers that `module` makes: up to TE 2.15 a qfactory is not told for whom."""
    make = module.set_meta_tensor

    def make_and_name(*args: Any, **kwargs: Any) -> None:
        make(*args, **kwargs)
        _name(module, name)

    vars(module)["set_meta_tensor"] = make_and_name
    try:
        yield
    finally:
        del vars(module)["set_meta_tensor"]


def _name(module: Any, name: str) -> list[str]:
    """Set the name that the module's quantizers carry; return the names of its linears."""
    module.name = name = name or "model"
    parts = [f"{name}.fc1", f"{name}.fc2"] if hasattr(module, "fc1_weight") else [name]
    for slots in module.quantizers.values():
        per_linear = len(slots) // len(parts)
        for index, quantizer in enumerate(slots):
            if hasattr(quantizer, "module"):
                quantizer.module = parts[index // per_linear]
    return parts
