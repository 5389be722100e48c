# SPDX-License-Identifier: Apache-2.0
"""Closed-form gradients equal fp64 autograd of the chains; RoPE multiplies complexes."""

from __future__ import annotations

import fusions_support as support
import torch

from mxflux.fusions import reference

F64 = torch.float64


def test_rotation_is_complex_multiplication() -> None:
    x = torch.randn(3, 2, 2, 16, dtype=F64)
    table = support.table(3, 1, 16, dtype=F64).cos_sin
    cos, sin = table.unsqueeze(2).chunk(2, dim=-1)
    turned = torch.view_as_complex(x.unflatten(-1, (8, 2))) * torch.complex(cos, sin)
    assert torch.allclose(
        reference.rotate(x, table), torch.view_as_real(turned).flatten(-2), atol=1e-14
    )


def test_norm_rope_closed_form() -> None:
    x, w = torch.randn(3, 2, 2, 16, dtype=F64), torch.randn(16, dtype=F64)
    cos_sin, g = support.table(3, 2, 16, dtype=F64).cos_sin, torch.randn(3, 2, 2, 16, dtype=F64)
    _, auto = support.gradients(
        lambda x, w: [reference.norm_rope(x, w, cos_sin)], [support.leaf(x), support.leaf(w)], [g]
    )
    for closed, want in zip(reference.norm_rope_backward(g, x, w, cos_sin), auto, strict=True):
        assert torch.allclose(closed, want, atol=1e-12)


def test_gate_residual_ln_modulate_closed_form() -> None:
    x, y, g, dh = (torch.randn(5, 2, 24, dtype=F64) for _ in range(4))
    gate, scale, shift = (torch.randn(2, 24, dtype=F64) for _ in range(3))
    inputs = [support.leaf(t) for t in (x, y, gate, scale, shift)]
    _, auto = support.gradients(reference.gate_residual_ln_modulate, inputs, [dh, g])
    closed = reference.gate_residual_ln_modulate_backward(g, dh, x + gate * y, y, gate, scale)
    for have, want in zip(closed, auto, strict=True):
        assert torch.allclose(have, want, atol=1e-12)


def test_bf16_chain_rounds_like_the_modules() -> None:
    x = support.values("random", 4, 2, 3, 16)
    norm = torch.nn.RMSNorm(16, eps=1e-6, dtype=support.BF16)
    want = norm(x).detach()
    assert support.worst(reference.rms_norm(x, norm.weight.detach(), 1e-6), want) <= 0.02
    assert (
        reference.ln_modulate(x.flatten(2), torch.zeros(2, 48), torch.zeros(2, 48)).dtype
        == support.BF16
    )
