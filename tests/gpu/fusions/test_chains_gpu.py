# SPDX-License-Identifier: Apache-2.0
"""The fused MX chains on a GPU: forward bits of the unfused path, the same bits from run to run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "overlay"))

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU in this machine"),
]
BF16 = torch.bfloat16
SEQ, BATCH, HIDDEN, HEADS, DIM = 64, 8, 512, 4, 128


@pytest.mark.parametrize("name", ["mxfp6", "mxfp4"])
def test_the_prologue_has_the_forward_bits_and_repeatable_gradients(name: str) -> None:
    from mxflux.fusions import mx_norm, mx_qkv
    from mxflux.fusions.ln_modulate import ln_modulate
    from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
    from mxflux.fusions.rope_table import RopeTable
    from mxflux.mx.linear import MXLinear
    from mxflux.mx.plans import PLANS

    torch.manual_seed(0)
    linear = MXLinear(HIDDEN, 3 * HEADS * DIM, PLANS[name](), device="cuda", dtype=BF16)
    weights = [torch.rand(DIM, device="cuda").to(BF16).add(0.5).requires_grad_() for _ in range(2)]
    angles = torch.rand(SEQ, 1, 1, DIM // 2, device="cuda").repeat_interleave(2, -1)
    table = RopeTable.from_angles(angles)
    hidden = torch.randn(SEQ, BATCH, HIDDEN, device="cuda", dtype=BF16)
    scale, shift = torch.randn(BATCH, 2 * HIDDEN, device="cuda", dtype=BF16).chunk(2, -1)

    def plain(x: torch.Tensor) -> Any:
        mixed = linear(ln_modulate(x, scale, shift)).unflatten(-1, (HEADS, -1))
        return norm_rope_qkv(mixed, *weights, table)

    def fused(x: torch.Tensor) -> Any:
        packed = mx_norm.ln_modulate_pack(x, scale, shift, linear.plan)
        return mx_qkv.qkv_prologue(packed, linear, *weights, table.cos_sin, heads=HEADS)

    def run(call: Any) -> list[torch.Tensor]:
        linear.rng[1] = 0
        x = hidden.clone().requires_grad_()
        outputs = call(x)
        leaves = [x, linear.weight, linear.bias, *weights]
        grads = [torch.full_like(o, 0.5) for o in outputs]
        return [*outputs, *torch.autograd.grad(outputs, leaves, grads)]

    want, got, again = run(plain), run(fused), run(fused)
    assert all(torch.equal(a, b) for a, b in zip(want[:3], got[:3], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))
    for ours, theirs in zip(got[3:], want[3:], strict=True):
        assert float((ours.float() - theirs.float()).norm()) < 0.02 * float(theirs.float().norm())


@pytest.mark.parametrize("hadamard", [0, 32])
def test_the_activation_in_front_of_a_packer_against_fp64(hadamard: int) -> None:
    """The GPU computes power and quotient by instructions of its own, which no CPU test sees."""
    from mxflux.fusions import mx_pack
    from mxflux.mx.spec import QuantSpec
    from mxflux.mx.triton_packers import pack

    torch.manual_seed(0)
    spec = str(QuantSpec("e2m3", hadamard=hadamard))
    x = torch.randn(512, 512, device="cuda") * torch.logspace(-6, 0, 512, device="cuda")[:, None]
    x, g = x.to(BF16), torch.randn(512, 512, device="cuda", dtype=BF16)
    wide = x.double().requires_grad_()
    y = torch.nn.functional.gelu(wide, approximate="tanh")
    (d,) = torch.autograd.grad(y, wide, g.double())
    forward = mx_pack.gelu_pack(x, spec, spec)
    backward, sums = mx_pack.gelu_grad_pack(g, x, None, spec, spec, torch.float32)
    for got, exact in ((forward, y.detach()), (backward, d)):
        want = pack(exact.float(), None, spec, spec)
        differing = sum(int((a != b).sum()) for a, b in zip(got, want, strict=True))
        assert differing <= sum(blob.numel() for blob in want) // 500
    assert sums is not None
    assert float((sums.double() - d.sum(0)).norm()) < 1e-5 * float(d.sum(0).norm())
