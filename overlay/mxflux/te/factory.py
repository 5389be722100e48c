# SPDX-License-Identifier: Apache-2.0
"""The qfactory behind the recipes: from the slot of a module to the quantizer that serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxflux.te.support import plan_in_use
from mxflux.te.tree import require_patches

if TYPE_CHECKING:
    from transformer_engine.pytorch.quantized_tensor import Quantizer

ROLES = ("input", "weight", "grad_output")
#: Module types whose GEMMs are Linear's: "" is what TE up to 2.15 amounts to.
LINEAR = ("linear", "")


def make_quantizer(recipe: Any, role: Any = None) -> Quantizer:
    """A quantizer for one slot of a TE module under `recipe`.

    role: TE's QuantizerRole, None, or the strings of TE up to 2.15 such as "linear_input". TE also
    makes quantizers for slots that it does not use unless told to (the output of a linear, all of
    attention); those get one that refuses to quantize.

    Raises RuntimeError if the recipe cannot run here or TE lacks patches that it relies on,
    NotImplementedError for a GroupedLinear.
    """
    from mxflux.te.quantizer import MXQuantizer, RefusingQuantizer

    require_patches()
    plan = plan_in_use(recipe)
    module_type, tensor_type, name = _slot(role)
    if module_type == "grouped_linear":
        raise NotImplementedError(
            f"{type(recipe).__name__} does not cover GroupedLinear ({name or 'unnamed'}): its "
            "grouped GEMM is C++ and knows TE's own quantizers only; keep it out of the autocast"
        )
    if module_type in LINEAR and tensor_type in ROLES:
        return MXQuantizer(plan, tensor_type, name)
    return RefusingQuantizer(f"{module_type or 'module'} {name or 'unnamed'}, slot {tensor_type!r}")


def _slot(role: Any) -> tuple[str, str, str]:
    """Module type, tensor type and module name of a role in any of TE's forms."""
    if role is None:
        return "", "", ""
    if isinstance(role, str):
        return "", role.removeprefix("linear_"), ""
    return role.module_type, role.tensor_type, role.name
