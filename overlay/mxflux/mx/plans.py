# SPDX-License-Identifier: Apache-2.0
"""LinearPlan: the six operands of a linear's three GEMMs, their backend and the backward precision.

GEMM    A        B        contracts
fprop   x_row    w_row    features in
dgrad   dy_row   w_col    features out
wgrad   dy_col   x_col    tokens
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxflux.mx.backends import backend_named
from mxflux.mx.errors import MXValueError
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6, PLAIN
from mxflux.mx.spec import QuantSpec

#: Backward precisions: the plan's own MX format, FP8 with one scale a tensor, or bf16.
BACKWARDS = ("mx", "fp8", "bf16")
PAIRS = {"fprop": ("x_row", "w_row"), "dgrad": ("dy_row", "w_col"), "wgrad": ("dy_col", "x_col")}


@dataclass(frozen=True)
class LinearPlan:
    """How one linear computes Y = X W^T + b and its gradients.

    name: for messages and tables. backend: of every MX GEMM. backward: mx, fp8 or bf16; the last
    two keep X and W in bf16 and use only x_row and w_row. packer: see `quantize_rows`.
    """

    name: str
    x_row: QuantSpec
    w_row: QuantSpec
    dy_row: QuantSpec
    w_col: QuantSpec
    dy_col: QuantSpec
    x_col: QuantSpec
    backend: str = "emulated"
    backward: str = "mx"
    packer: str = "auto"

    def __post_init__(self) -> None:
        backend = backend_named(self.backend)
        if self.backward not in BACKWARDS:
            valid = ", ".join(BACKWARDS)
            raise MXValueError(f"plan {self.name}: backward={self.backward!r}; valid: {valid}")
        for direction, (left, right) in PAIRS.items():
            a, b = getattr(self, left), getattr(self, right)
            if a.hadamard != b.hadamard:
                raise MXValueError(
                    f"plan {self.name}: {direction}: {left} is rotated by {a.hadamard} points, "
                    f"{right} by {b.hadamard}: both operands of a GEMM or neither"
                )
            for spec in (a, b):
                if spec.format not in backend.FORMATS:
                    raise MXValueError(
                        f"plan {self.name}: backend {self.backend} has no {spec.format}; "
                        f"valid: {', '.join(backend.FORMATS)}"
                    )
        for name in ("x_row", "x_col", "w_row", "w_col"):
            if getattr(self, name).stochastic:
                raise MXValueError(f"plan {self.name}: {name}: only gradients round stochastically")

    @property
    def stochastic(self) -> bool:
        """Whether a gradient rounds stochastically, so that an rng state is needed."""
        return self.backward == "mx" and (self.dy_row.stochastic or self.dy_col.stochastic)


def mxfp4(
    backend: str = "emulated",
    *,
    scale_mode: str = "floor",
    weight_2d: bool = True,
    stochastic_gradients: bool = True,
    wgrad_hadamard: int = 16,
    backward: str = "mx",
    packer: str = "auto",
) -> LinearPlan:
    """E2M1 everywhere. Weights in 32 x 32 squares, gradients stochastic, wgrad's pair rotated."""
    for_aiter = backend == "aiter"
    left = QuantSpec("e2m1", scale_mode, layout=AITER_A4W4_A if for_aiter else PLAIN)
    right = QuantSpec("e2m1", scale_mode, layout=AITER_A4W4_B if for_aiter else PLAIN)
    weight = replace(right, block_2d=weight_2d)
    gradient = replace(left, stochastic=stochastic_gradients)
    return LinearPlan(
        "mxfp4",
        x_row=left,
        w_row=weight,
        dy_row=gradient,
        w_col=weight,
        dy_col=replace(gradient, hadamard=wgrad_hadamard),
        x_col=replace(right, hadamard=wgrad_hadamard),
        backend=backend,
        backward=backward,
        packer=packer,
    )


def mxfp6(
    backend: str = "emulated",
    *,
    element: str = "e2m3",
    scale_mode: str = "floor",
    hadamard: int = 32,
    backward: str = "mx",
    packer: str = "auto",
) -> LinearPlan:
    """E2M3 (or E3M2), every operand rotated by 32 points, nearest even."""
    layout = AITER_A6W6 if backend == "aiter" else PLAIN
    spec = QuantSpec(element, scale_mode, hadamard=hadamard, layout=layout)
    return LinearPlan(
        "mxfp6",
        x_row=spec,
        w_row=spec,
        dy_row=spec,
        w_col=spec,
        dy_col=spec,
        x_col=spec,
        backend=backend,
        backward=backward,
        packer=packer,
    )


def mxfp8(
    backend: str = "emulated",
    *,
    scale_mode: str = "floor",
    gradient: str = "e4m3",
    backward: str = "mx",
    packer: str = "auto",
) -> LinearPlan:
    """E4M3, gradients E4M3 or E5M2."""
    spec, grad = QuantSpec("e4m3", scale_mode), QuantSpec(gradient, scale_mode)
    return LinearPlan(
        "mxfp8",
        x_row=spec,
        w_row=spec,
        dy_row=grad,
        w_col=spec,
        dy_col=grad,
        x_col=spec,
        backend=backend,
        backward=backward,
        packer=packer,
    )


PLANS = {"mxfp4": mxfp4, "mxfp6": mxfp6, "mxfp8": mxfp8}
