# SPDX-License-Identifier: Apache-2.0
"""The packers with a producer in front, at Flux's shapes, as launches on any device."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mxflux.fusions import mx_pack
from mxflux.fusions.catalog import HEAD_DIM, HEADS, HIDDEN, Call, size
from mxflux.mx.plans import LinearPlan, mxfp4, mxfp6, mxfp8

if TYPE_CHECKING:
    from mxflux.mx.triton_packers import Tile

Tensor = torch.Tensor
KERNELS = ("ln_pack", "gelu_pack", "gelu_grad_pack", "qkv_grad_pack")
PLANS: dict[str, LinearPlan] = {
    "mxfp4": mxfp4(),
    "mxfp6": mxfp6(),
    "mxfp8": mxfp8(),
    "mxfp4-unrotated": mxfp4(weight_2d=False, stochastic_gradients=False, wgrad_hadamard=0),
    "mxfp6-unrotated": mxfp6(hadamard=0),
}
"""The unrotated ones are what a recipe asks for that leaves every option of its format off."""


@dataclass(frozen=True)
class Case:
    """One kernel, one plan's specs, dual or rows only."""

    kernel: str
    plan: str
    dual: bool = True

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kernel} {self.plan} {'dual' if self.dual else 'row'}"

    @property
    def specs(self) -> tuple[str, str]:
        """Row and column spec texts: of the input where the kernel runs forward, else of dY."""
        plan = PLANS[self.plan]
        row, col = (plan.dy_row, plan.dy_col) if "grad" in self.kernel else (plan.x_row, plan.x_col)
        return str(row), str(col) if self.dual else ""


def _cases() -> tuple[Case, ...]:
    """Every kernel with every plan's specs; what an earlier plan packs alike is left out."""
    found: dict[tuple[str, str, str], Case] = {}
    for kernel in KERNELS:
        for plan in PLANS:
            for dual in (True,) if "grad" in kernel else (True, False):
                case = Case(kernel, plan, dual)
                found.setdefault((kernel, *case.specs), case)
    return tuple(found.values())


CASES = _cases()


def call(case: Case, seq: int, batch: int, device: str = "meta", tiles: Tile | None = None) -> Call:
    """The launch of a case at [seq, batch] and the pointers it takes, without the sums."""
    make = functools.partial(_tensor, device)
    tokens = seq * batch
    row, col = case.specs
    rng = torch.zeros(2, dtype=torch.int64, device=device)
    if case.kernel == "ln_pack":
        x, scale, shift = make(seq, batch, HIDDEN), *make(batch, 6 * HIDDEN).chunk(6, -1)[:2]
        plan = mx_pack._plan_ln(x, scale, shift, row, col, tiles)
        before: tuple[Tensor, ...] = (
            x,
            scale,
            shift,
            *(make(tokens, dtype=torch.float32) for _ in range(2)),
        )
        after: tuple[Tensor, ...] = ()
    elif case.kernel == "gelu_pack":
        x = make(tokens, 4 * HIDDEN)
        plan = mx_pack._plan_gelu(x, row, col, tiles)
        before, after = (x,), ()
    elif case.kernel == "gelu_grad_pack":
        g, x = make(tokens, 4 * HIDDEN), make(tokens, 4 * HIDDEN)
        plan = mx_pack._plan_gelu_grad(g, x, row, col, torch.bfloat16, tiles)
        before = (g, x, rng)
        after = (make(*plan.sums, dtype=torch.float32),)
    else:
        dq, dk, dv = (make(seq, batch, HEADS, HEAD_DIM) for _ in range(3))
        mixed = make(seq, batch, HEADS, 3 * HEAD_DIM)
        table = make(seq, 1, HEAD_DIM, dtype=torch.float32)
        plan = mx_pack._plan_qkv((dq, dk, dv), mixed, table, row, col, torch.bfloat16, tiles)
        weights = (make(HEAD_DIM), make(HEAD_DIM))
        rstd = make(2, tokens * HEADS, dtype=torch.float32)
        before = (dq, dk, dv, mixed, *weights, table, rstd, rng)
        after = (make(*plan.gamma, dtype=torch.float32), make(*plan.sums, dtype=torch.float32))
    blobs = plan.buffers(before[0])
    least = size(*before, *blobs, *after)
    if case.kernel == "qkv_grad_pack":
        least -= size(mixed) // 3
    return Call(plan.launch, (*before, *plan.written(blobs), *after), least)


def _tensor(device: str, *sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    made = torch.empty(sizes, dtype=dtype, device=device)
    return made if device == "meta" else made.normal_()
