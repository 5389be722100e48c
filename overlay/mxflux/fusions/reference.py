# SPDX-License-Identifier: Apache-2.0
"""The unfused chains in plain torch, rounded as the modules do, with closed-form gradients.

In fp64 these are the ground truth of the kernels' tests; in bf16 they are what the kernels replace
and must beat; on a machine without the kernels they are the model's fallback. Differentiable as
written.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension: statistics in fp32 (fp64 for fp64), rounded, then times weight: two
    roundings.
    """
    wide = x.to(_wide(x))
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed.to(x.dtype) * weight).to(x.dtype)


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """Interleaved RoPE in x's dtype: (x0, x1) -> (x0*c - x1*s, x1*c + x0*s); cos and sin rounded to
    x's dtype.

    x: [S, B, heads, D]; cos_sin: [S, 1 or B, D] as RopeTable holds it.
    """
    cos, sin = cos_sin.to(x.dtype).unsqueeze(2).chunk(2, dim=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return rotated.flatten(-2)


def norm_rope(x: Tensor, weight: Tensor, cos_sin: Tensor, eps: float = 1e-6) -> Tensor:
    """RMSNorm, then RoPE: [S, B, heads, D]."""
    return rotate(rms_norm(x, weight, eps), cos_sin)


def norm_rope_qkv(
    mixed: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """mixed [S, B, heads, 3*D] -> q, k, v [S, B, heads, D]."""
    q, k, v = mixed.chunk(3, dim=-1)
    return norm_rope(q, q_weight, cos_sin, eps), norm_rope(k, k_weight, cos_sin, eps), v


def ln_modulate(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
    """LayerNorm without affine, times (1 + scale), plus shift, each step rounded to x's dtype."""
    normed = torch.nn.functional.layer_norm(x, (x.shape[-1],), eps=eps)
    return (normed * (1 + scale) + shift).to(x.dtype)


def gate_residual_ln_modulate(
    x: Tensor, y: Tensor, gate: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """h = x + gate*y and ln_modulate(h)."""
    h = (x + gate * y).to(x.dtype)
    return h, ln_modulate(h, scale, shift, eps)


def norm_rope_backward(
    grad: Tensor, x: Tensor, weight: Tensor, cos_sin: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """(dx, dweight) in closed form, in the dtype of the arguments."""
    cos, sin = cos_sin.to(x.dtype).unsqueeze(2).chunk(2, dim=-1)
    even, odd = grad[..., 0::2], grad[..., 1::2]
    dn = torch.stack((even * cos + odd * sin, odd * cos - even * sin), dim=-1).flatten(-2)
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    xh = x * rstd
    gw = dn * weight
    dx = rstd * (gw - xh * (gw * xh).mean(-1, keepdim=True))
    return dx, (dn * xh).sum((0, 1, 2))


def ln_modulate_backward(
    grad: Tensor, x: Tensor, scale: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dscale, dshift) in closed form, in the dtype of the arguments."""
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    xh = centred * rstd
    g1 = grad * (1 + scale)
    dx = rstd * (g1 - g1.mean(-1, keepdim=True) - xh * (g1 * xh).mean(-1, keepdim=True))
    return dx, (grad * xh).sum(0), grad.sum(0)


def gate_residual_ln_modulate_backward(
    grad: Tensor, dh: Tensor, h: Tensor, y: Tensor, gate: Tensor, scale: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(dx, dy, dgate, dscale, dshift) in closed form, from d(out), d(h), h, y."""
    dx, dscale, dshift = ln_modulate_backward(grad, h, scale, eps)
    dx = dx + dh
    return dx, dx * gate, (dx * y).sum(0), dscale, dshift


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
