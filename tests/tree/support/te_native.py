# SPDX-License-Identifier: Apache-2.0
"""The few functions of `transformer_engine_torch` that the stub does have, in torch, counted.

Signatures follow transformer_engine/pytorch/csrc/extensions of TE 2.18. They compute in fp32 and
refuse the quantizers and fusions that only C++ could serve.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: Calls by function name since `CALLS.clear()`; "generic_gemm" is TE's native GEMM.
CALLS: Counter[str] = Counter()

_TORCH = {4: torch.float32, 5: torch.float16, 6: torch.bfloat16}


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLS[function.__name__] += 1
        return function(*args, **kwargs)

    return call


def _no_quantizer(name: str, quantizer: object) -> None:
    if quantizer is not None:
        raise RuntimeError(f"{name}: Unexpected type for quantizer: {type(quantizer).__name__}")


def generic_gemm(
    a: torch.Tensor,
    transa: bool,
    b: torch.Tensor,
    transb: bool,
    out: torch.Tensor | None,
    quantizer: object,
    out_dtype: int | None,
    bias: torch.Tensor | None,
    _bias_dtype: object,
    gelu: bool,
    _gelu_in: torch.Tensor | None,
    grad: bool,
    *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
    """D = op(B) op(A) of row-major matrices, in fp32; with `grad` the bias gradient of B."""
    accumulate = rest[2]
    _no_quantizer("generic_gemm", quantizer)
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or gelu:
        raise RuntimeError(
            f"generic_gemm: Unexpected operands {type(a).__name__}, {type(b).__name__}"
        )
    if options["comm_overlap"] is not None or options["extra_output"] is not None:
        raise NotImplementedError("generic_gemm: communication overlap is not in the stub")
    left = b.reshape(-1, b.shape[-1]).float()
    right = a.reshape(-1, a.shape[-1]).float()
    result = (left.t() if transb else left) @ (right.t() if transa else right)
    grad_bias = None
    if bias is not None and grad:
        grad_bias = left.sum(0).to(bias.dtype)
    elif bias is not None:
        result = result + bias.float()
    result = result.to(a.dtype if out_dtype is None else _TORCH[int(out_dtype)])
    if not transb:
        result = result.reshape(*b.shape[:-1], result.shape[-1])
    if out is not None:
        result = out.add_(result) if accumulate else out.copy_(result)
    return result, grad_bias, None, None


def _normalize(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float, shift: float
) -> torch.Tensor:
    """RMSNorm where `bias` is None, LayerNorm otherwise; differentiable, fp32."""
    gamma = weight.float() + shift
    if bias is None:
        return x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps) * gamma
    normal = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], eps=eps)
    return normal * gamma + bias.float()


def rmsnorm_fwd(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None,
    quantizer: object,
    dtype: int,
    _margin: int,
    zero_centered: bool,
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """x (M, H) -> normalized (M, H), no mean; the statistics carry `eps`, which is all it takes."""
    _no_quantizer("rmsnorm_fwd", quantizer)
    if out is not None:
        raise NotImplementedError("rmsnorm_fwd: writing into a given tensor is not in the stub")
    y = _normalize(x, weight, None, eps, float(zero_centered))
    return y.to(_TORCH[int(dtype)]), None, torch.full((x.shape[0],), eps)


def layernorm_fwd(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    out: torch.Tensor | None,
    quantizer: object,
    dtype: int,
    _margin: int,
    zero_centered: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (M, H) -> normalized (M, H), no real mean; the statistics carry `eps` to the backward."""
    _no_quantizer("layernorm_fwd", quantizer)
    if out is not None:
        raise NotImplementedError("layernorm_fwd: writing into a given tensor is not in the stub")
    y = _normalize(x, weight, bias, eps, float(zero_centered))
    return y.to(_TORCH[int(dtype)]), torch.zeros(x.shape[0]), torch.full((x.shape[0],), eps)


def _norm_bwd(
    dz: torch.Tensor, x: torch.Tensor, eps: torch.Tensor, weights: list[torch.Tensor], shift: float
) -> list[torch.Tensor]:
    leaves = [t.detach().float().requires_grad_() for t in (x, *weights)]
    with torch.enable_grad():
        bias = leaves[2] if len(leaves) == 3 else None
        y = _normalize(leaves[0], leaves[1], bias, float(eps[0]), shift)
        grads = torch.autograd.grad(y, leaves, dz.float().reshape(y.shape))
    return [g.to(t.dtype) for g, t in zip(grads, (x, *weights), strict=True)]


def rmsnorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    rsigma: torch.Tensor,
    weight: torch.Tensor,
    _margin: int,
    zero_centered: bool,
) -> tuple[torch.Tensor, ...]:
    """dx and dgamma of `rmsnorm_fwd`, by autograd."""
    return tuple(_norm_bwd(dz, x, rsigma, [weight], float(zero_centered)))


def layernorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    _mu: torch.Tensor,
    rsigma: torch.Tensor,
    weight: torch.Tensor,
    _margin: int,
    zero_centered: bool,
) -> tuple[torch.Tensor, ...]:
    """dx, dgamma and dbeta of `layernorm_fwd`, by autograd."""
    beta = torch.zeros_like(weight)
    return tuple(_norm_bwd(dz, x, rsigma, [weight, beta], float(zero_centered)))


def gelu(x: torch.Tensor, quantizer: object) -> torch.Tensor:
    """Tanh GELU, as TE's kernel."""
    _no_quantizer("gelu", quantizer)
    return torch.nn.functional.gelu(x.float(), approximate="tanh").to(x.dtype)


def dgelu(grad: torch.Tensor, x: torch.Tensor, quantizer: object) -> torch.Tensor:
    """Gradient of `gelu`, by autograd."""
    _no_quantizer("dgelu", quantizer)
    leaf = x.detach().float().requires_grad_()
    with torch.enable_grad():
        y = torch.nn.functional.gelu(leaf, approximate="tanh")
        (dx,) = torch.autograd.grad(y, leaf, grad.float())
    return dx.to(x.dtype)


def functions() -> dict[str, Callable[..., Any]]:
    """Name -> counted function, for the stub module."""
    known = (
        generic_gemm,
        rmsnorm_fwd,
        rmsnorm_bwd,
        layernorm_fwd,
        layernorm_bwd,
        gelu,
        dgelu,
    )
    return {f.__name__: _counted(f) for f in known}
