# SPDX-License-Identifier: Apache-2.0
"""What the fused MX chains share: an input packed by its producer, one linear's part in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mxflux.fusions import checks
from mxflux.fusions.mx_pack import blob_problem
from mxflux.mx import ops
from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MissingOperandError
from mxflux.mx.gemm import gemm
from mxflux.mx.linear import weight_gradient
from mxflux.mx.plans import LinearPlan
from mxflux.mx.quantize import ABSENT

if TYPE_CHECKING:
    from mxflux.mx.packers import Packed

Tensor = torch.Tensor
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class PackedInput:
    """The input [S,B,K] of MX linears as its producer packed it; it was never written itself.

    stub: one NaN expanded to [S,B,K], through which gradients flow; reading it gives NaN, never a
    stale number. blobs: row data, row scale, column data, column scale (the last two empty where no
    weight gradient was to follow). row, col: the spec texts they were packed under.
    """

    stub: Tensor
    blobs: Packed
    row: str
    col: str

    @property
    def shape(self) -> torch.Size:
        """[S,B,K]."""
        return self.stub.shape


Input = Tensor | PackedInput


@dataclass(frozen=True)
class LinearUse:
    """One MX linear's part in a chain. rng: a snapshot; main_grad: where dW is added, or None."""

    weight: Tensor
    bias: Tensor | None
    plan: LinearPlan
    rng: Tensor | None
    site: Tensor | None
    main_grad: Tensor | None

    @property
    def sizes(self) -> tuple[int, int]:
        """N, K."""
        return self.weight.shape[0], self.weight.shape[1]


def use_of(module: Any) -> LinearUse:
    """The part of an MX linear module, its rng advanced as its own forward would."""
    plan, rng, grad = module.plan, None, torch.is_grad_enabled()
    if plan.stochastic:
        rng = module.rng
        if grad:
            rng = rng.clone()
            module.rng[1] += 1
    fused = getattr(module, "gradient_accumulation_fusion", False) and module.weight.requires_grad
    main_grad = module.weight.main_grad if fused else None
    return LinearUse(module.weight, module.bias, plan, rng, module.mx_site, main_grad)


def linear_problem(name: str, module: Any) -> str | None:
    """Why a module cannot take part in a chain: not an MX linear, or not MX in both directions."""
    plan = getattr(module, "plan", None)
    if not isinstance(plan, LinearPlan):
        return checks.expect(name, type(module).__name__, "a linear in an MX format")
    if plan.backward != "mx":
        return checks.expect(f"{name}: backward", plan.backward, "mx")
    if plan.packer == "reference":
        return checks.expect(f"{name}: packer", plan.packer, "auto or triton")
    return hook_problem(name, module)


def hook_problem(name: str, module: Any) -> str | None:
    """A fused path calls no module: hooks that it would skip speak against it.

    Forward pre-hooks are run by the caller (`mxflux.flux.fused.announce`).
    """
    hooks = ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    found = [hook.strip("_") for hook in hooks if getattr(module, hook, None)]
    return (
        checks.expect(f"{name}: hooks", ", ".join(found), "none, they would not run")
        if found
        else None
    )


def input_problem(x: Input, module: Any) -> str | None:
    """x [S,B,K], a floating dtype, of a device where the kernels run, and blobs that exist."""
    stub = x.stub if isinstance(x, PackedInput) else x
    if stub.dim() != 3 or stub.shape[2] != module.weight.shape[1]:
        return checks.expect("x shape", list(stub.shape), f"[S, B, {module.weight.shape[1]}]")
    if torch.compiler.is_compiling():
        return "torch.compile traces; the fused MX chains run in eager"
    if stub.dtype not in FLOATS:
        return checks.expect("x dtype", stub.dtype, "one of " + ", ".join(map(str, FLOATS)))
    if stub.numel() == 0:
        return checks.expect("x shape", list(stub.shape), "at least one element")
    return checks.first(checks.runnable("x", stub), _packed_problem(x, module))


def _packed_problem(x: Input, module: Any) -> str | None:
    if not isinstance(x, PackedInput):
        return None
    wanted = str(module.plan.x_row)
    return None if x.row == wanted else checks.expect("packed input", x.row, wanted)


def gradient_problem(tokens: int, module: Any) -> str | None:
    """Whether the gradient of a linear's output has its blobs."""
    plan = module.plan
    return checks.first(
        blob_problem(tokens, module.weight.shape[0], str(plan.dy_row)),
        blob_problem(module.weight.shape[0], tokens, str(plan.dy_col)),
    )


def pack_input(x: Input, use: LinearUse, needs_wgrad: bool) -> tuple[MXBlob, Tensor, Tensor]:
    """The row blob of x (T, K), and data and scale of its column blob (empty without wgrad)."""
    plan = use.plan
    if isinstance(x, PackedInput):
        k, packed = x.shape[-1], x.blobs
        tokens = x.stub.numel() // k
        if needs_wgrad and x.col != str(plan.x_col):
            raise MissingOperandError(
                f"the input was packed with columns {x.col or 'absent'!r}, {plan.x_col} are needed "
                "for the weight gradient"
            )
    else:
        tokens, k = x.shape
        col = str(plan.x_col) if needs_wgrad else ABSENT
        packed = ops.quantize(x, None, str(plan.x_row), col, plan.packer, True, use.site, "input")
    return MXBlob(packed[0], packed[1], tokens, k, plan.x_row), packed[2], packed[3]


def pack_weight(use: LinearUse, needs_dgrad: bool) -> tuple[MXBlob, Tensor, Tensor]:
    """The row blob of the weight (N, K), and data and scale of its column blob."""
    plan, (n, k) = use.plan, use.sizes
    col = str(plan.w_col) if needs_dgrad else ABSENT
    packed = ops.quantize(
        use.weight, None, str(plan.w_row), col, plan.packer, True, use.site, "weight"
    )
    return MXBlob(packed[0], packed[1], n, k, plan.w_row), packed[2], packed[3]


def product(a: MXBlob, b: MXBlob, use: LinearUse, dtype: torch.dtype, bias: bool = True) -> Tensor:
    """The forward GEMM of a linear."""
    return gemm(
        a, b, backend=use.plan.backend, out_dtype=dtype, bias=use.bias if bias else None,
        site=use.site,
    )  # fmt: skip


def input_gradient(
    packed: Packed, w_col: tuple[Tensor, Tensor], tokens: int, use: LinearUse, dtype: torch.dtype
) -> Tensor:
    """dX (T, K) of the row blob of dY and the column blob of W."""
    n, k = use.sizes
    if w_col[0].numel() == 0:
        raise MissingOperandError(_missing("input"))
    a = MXBlob(packed[0], packed[1], tokens, n, use.plan.dy_row)
    b = MXBlob(*w_col, k, n, use.plan.w_col)
    plan = use.plan
    return gemm(a, b, backend=plan.backend, out_dtype=dtype, site=use.site, direction="dgrad")


def parameter_gradient(
    packed: Packed, x_col: tuple[Tensor, Tensor], tokens: int, use: LinearUse
) -> Tensor | None:
    """dW (N, K) of the column blobs of dY and X; added to main_grad where there is one."""
    n, k = use.sizes
    if x_col[0].numel() == 0:
        raise MissingOperandError(_missing("weight"))
    a = MXBlob(packed[2], packed[3], n, tokens, use.plan.dy_col)
    b = MXBlob(*x_col, k, tokens, use.plan.x_col)
    backend = use.plan.backend

    def multiply(**how: Any) -> Tensor:
        return gemm(a, b, backend=backend, **how)

    return weight_gradient(multiply, use.site, (n, k), use.weight.dtype, use.weight, use.main_grad)


def _missing(name: str) -> str:
    return (
        f"backward of a fused MX chain whose forward was told that the gradient of its {name} is "
        "not needed (no grad): the column blobs were never packed"
    )
