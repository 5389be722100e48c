# SPDX-License-Identifier: Apache-2.0
"""From the options of a recipe to what each of the three GEMMs of a linear layer is made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxflux.mx.backends import backend_named
from mxflux.mx.errors import MXValueError
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6, PLAIN
from mxflux.mx.spec import QuantSpec

if TYPE_CHECKING:
    from mxflux.te.options import Options

DIRECTIONS = ("fprop", "dgrad", "wgrad")
#: The format of a GEMM whose operands stay as they are, in the module's own dtype.
BF16 = "bf16"
#: Points of the rotation by element format: what AITER's FP4 and FP6 paths rotate by.
HADAMARD = {"e2m1": 16, "e2m3": 32, "e3m2": 32}
#: Layouts of the A and the B operand by (backend, element format), where they are not plain.
LAYOUTS = {
    ("aiter", "e2m1"): (AITER_A4W4_A, AITER_A4W4_B),
    ("aiter", "e2m3"): (AITER_A6W6, AITER_A6W6),
}


@dataclass(frozen=True)
class GemmPlan:
    """One GEMM D = A B^T: `QuantSpec` text of both operands and a backend; all "" for BF16."""

    a: str = ""
    b: str = ""
    backend: str = ""

    @property
    def format(self) -> str:
        """Element format, "bf16" where nothing is quantized."""
        return QuantSpec.parse(self.a).format if self.a else BF16


@dataclass(frozen=True)
class Plan:
    """The three GEMMs of a linear layer: Y = X W^T, dX = dY W, dW = dY^T X.

    The row pack of a tensor feeds the GEMM that contracts its last dimension, the column pack the
    one that contracts its rows: X row and W row fprop, dY row and W column dgrad, dY column and X
    column wgrad. In every GEMM the first of the two is A.
    """

    fprop: GemmPlan
    dgrad: GemmPlan
    wgrad: GemmPlan

    # Quantizers carry this text: torch.compile takes only plain values for constants.
    def __str__(self) -> str:
        gemms = (self.fprop, self.dgrad, self.wgrad)
        return "|".join(f"{gemm.a},{gemm.b},{gemm.backend}" for gemm in gemms)

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan whose `str` is `text`; MXValueError on anything else."""
        return _parse(text)

    def packs(self, role: str) -> tuple[str, str]:
        """Spec text of the row and the column pack of `input`, `weight` or `grad_output`."""
        return {
            "input": (self.fprop.a, self.wgrad.b),
            "weight": (self.fprop.b, self.dgrad.b),
            "grad_output": (self.dgrad.a, self.wgrad.a),
        }[role]

    def gemm(self, direction: str) -> GemmPlan:
        """The GEMM of `fprop`, `dgrad` or `wgrad`."""
        return {"fprop": self.fprop, "dgrad": self.dgrad, "wgrad": self.wgrad}[direction]


@functools.cache
def _parse(text: str) -> Plan:
    parts = [part.split(",") for part in text.split("|")]
    if [len(part) for part in parts] != [3, 3, 3]:
        raise MXValueError(f"not a plan of three GEMMs: {text!r}")
    for spec in (spec for a, b, _ in parts for spec in (a, b) if spec):
        QuantSpec.parse(spec)
    return Plan(*(GemmPlan(*part) for part in parts))


@functools.cache
def plan_of(options: Options, backend: str) -> Plan:
    """The plan that `options` mean on `backend`. MXValueError for what has no defined result."""
    backend_named(backend)
    grad = {"stochastic": options.stochastic_rounding}
    weight = {"block_2d": options.weight_block_2d}
    return Plan(
        fprop=_gemm(options, options.fprop, backend, {}, weight),
        dgrad=_gemm(options, options.dgrad, backend, grad, weight),
        wgrad=_gemm(options, options.wgrad, backend, grad, {}),
    )


def _gemm(
    options: Options, element: str, backend: str, a: dict[str, bool], b: dict[str, bool]
) -> GemmPlan:
    if element == BF16:
        return GemmPlan()
    hadamard = HADAMARD.get(element, 0) if options.use_hadamard else 0
    layout_a, layout_b = LAYOUTS.get((backend, element), (PLAIN, PLAIN))
    spec_a = QuantSpec(element, options.scale_mode, hadamard, **a, layout=layout_a)
    spec_b = QuantSpec(element, options.scale_mode, hadamard, **b, layout=layout_b)
    return GemmPlan(str(spec_a), str(spec_b), backend)
