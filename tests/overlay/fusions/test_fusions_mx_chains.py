# SPDX-License-Identifier: Apache-2.0
"""The fused MX chains against the modules they replace: bits, GEMMs, row-only, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fusions_support as support
import pytest
import torch

from mxflux.fusions import mx_mlp, mx_norm, mx_qkv
from mxflux.fusions.gate_residual import gate_residual_ln_modulate
from mxflux.fusions.ln_modulate import ln_modulate
from mxflux.fusions.norm_rope_qkv import norm_rope_qkv
from mxflux.mx import Census, MissingOperandError, census
from mxflux.mx.linear import MXLinear
from mxflux.mx.plans import LinearPlan, mxfp4, mxfp6, mxfp8

Tensor = torch.Tensor
BF16 = torch.bfloat16
SEQ, BATCH, HIDDEN, HEADS, DIM = 8, 4, 64, 2, 32
PLANS = {"mxfp6": mxfp6(), "mxfp4": mxfp4()}
TABLE = support.table(SEQ, 1, DIM)


class Block(torch.nn.Module):
    """The linears and norm weights of a single block's two branches."""

    def __init__(self, plan: LinearPlan) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = MXLinear(HIDDEN, 3 * HEADS * DIM, plan, dtype=BF16)
        self.fc1 = MXLinear(HIDDEN, 128, plan, dtype=BF16)
        self.fc2 = MXLinear(128, HIDDEN, plan, dtype=BF16, bias=False)
        self.q = torch.nn.Parameter(1 + 0.1 * torch.randn(DIM).to(BF16))
        self.k = torch.nn.Parameter(1 + 0.1 * torch.randn(DIM).to(BF16))

    def fresh(self) -> None:
        for linear in (self.qkv, self.fc1, self.fc2):
            linear.rng[1] = 0

    def plain_qkv(self, x: Tensor) -> tuple[Tensor, ...]:
        return norm_rope_qkv(self.qkv(x).unflatten(-1, (HEADS, -1)), self.q, self.k, TABLE)

    def fused_qkv(self, x: Any) -> tuple[Tensor, ...]:
        return mx_qkv.qkv_prologue(x, self.qkv, self.q, self.k, TABLE.cos_sin, heads=HEADS)

    def plain_mlp(self, x: Tensor) -> tuple[Tensor, ...]:
        act = torch.nn.functional.gelu(self.fc1(x), approximate="tanh")
        return (self.fc2(act),)

    def fused_mlp(self, x: Any) -> tuple[Tensor, ...]:
        return (mx_mlp.mx_mlp(x, self.fc1, self.fc2),)


@pytest.fixture(params=PLANS)
def block(request: pytest.FixtureRequest) -> Block:
    return Block(PLANS[request.param])


def hidden() -> Tensor:
    return support.leaf(support.values("random", SEQ, BATCH, HIDDEN))


def both_ways(
    block: Block, run: Callable[..., tuple[Tensor, ...]], *inputs: Tensor
) -> tuple[list[Tensor], Census]:
    """Outputs, then the gradients of inputs and parameters, and what was counted."""
    block.fresh()
    leaves = [*inputs, *block.parameters()]
    with census(block) as counted:
        outputs = run(*inputs)
        grads = [support.values("random", *o.shape, seed=i) for i, o in enumerate(outputs)]
        found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
    zero = torch.zeros(1)
    return [*(o.detach() for o in outputs), *(zero if f is None else f for f in found)], counted


def exact_mlp(block: Block) -> list[Tensor]:
    """The MLP in fp64 without quantization, in the order of `both_ways`."""
    x = hidden().detach().double().requires_grad_()
    leaves = {n: p.detach().double().requires_grad_() for n, p in block.named_parameters()}
    inner = x @ leaves["fc1.weight"].t() + leaves["fc1.bias"]
    y = torch.nn.functional.gelu(inner, approximate="tanh") @ leaves["fc2.weight"].t()
    dy = support.values("random", *y.shape, seed=0).double()
    found = torch.autograd.grad(y, [x, *leaves.values()], dy, allow_unused=True)
    return [y.detach(), *(torch.zeros(1) if f is None else f for f in found)]


def relative(found: Tensor, exact: Tensor) -> float:
    """Norm of the difference over the norm; 0 for a gradient that neither has."""
    norm = float(exact.double().norm())
    return float((found.double() - exact.double()).norm()) / norm if norm else 0.0


@pytest.mark.parametrize("part", ["qkv", "mlp"])
def test_the_bits_of_the_unfused_path_and_the_same_gemms(block: Block, part: str) -> None:
    plain, plain_count = both_ways(block, getattr(block, f"plain_{part}"), hidden())
    fused, fused_count = both_ways(block, getattr(block, f"fused_{part}"), hidden())
    if part == "qkv":
        assert support.equal(fused, plain)  # outputs, dx, dW, db and both dgammas
    else:
        # the activation and its gradient are not rounded in between: no less accurate
        exact = exact_mlp(block)
        ours, theirs = ([relative(*p) for p in zip(t, exact, strict=True)] for t in (fused, plain))
        assert max(theirs) > 0.01  # quantization shows
        assert sum(ours) < 1.05 * sum(theirs)
    assert fused_count.gemms == plain_count.gemms
    assert fused_count.total_gemms() == (3 if part == "qkv" else 6)
    kinds = {key[:3] for key in fused_count.quantizations}
    assert kinds == {key[:3] for key in plain_count.quantizations}


def test_one_pack_of_the_norm_serves_both_branches(block: Block) -> None:
    scale, shift = (support.values("random", BATCH, HIDDEN, seed=s) for s in (7, 8))
    plan = block.qkv.plan

    def plain(x: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        normalized = ln_modulate(x, scale, shift)
        return *block.fused_qkv(normalized), *block.fused_mlp(normalized)

    def packed(x: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        site = block.qkv.mx_site
        normalized = mx_norm.ln_modulate_pack(x, scale, shift, plan, site=site)
        assert normalized.stub.isnan().all()
        assert normalized.stub.untyped_storage().nbytes() == 2
        return *block.fused_qkv(normalized), *block.fused_mlp(normalized)

    inputs = (hidden(), support.leaf(scale), support.leaf(shift))
    want, before = both_ways(block, plain, *inputs)
    got, after = both_ways(block, packed, *inputs)
    assert support.equal(got, want)
    assert after.gemms == before.gemms
    packs = [
        sum(n for key, n in c.quantizations.items() if "input" in key[1]) for c in (before, after)
    ]
    assert packs == [3, 2]  # qkv, fc1, fc2; one for qkv and fc1, fc2


def test_the_gated_residual_packs_for_the_mlp(block: Block) -> None:
    parts = [support.values("random", BATCH, HIDDEN, seed=s) for s in (7, 8, 9)]
    y = support.values("random", SEQ, BATCH, HIDDEN, seed=6)

    def plain(x: Tensor, y: Tensor, *mod: Tensor) -> tuple[Tensor, ...]:
        h, normalized = gate_residual_ln_modulate(x, y, *mod)
        return h, *block.fused_mlp(normalized)

    def packed(x: Tensor, y: Tensor, *mod: Tensor) -> tuple[Tensor, ...]:
        h, normalized = mx_norm.gate_residual_ln_modulate_pack(x, y, *mod, block.fc1.plan)
        return h, *block.fused_mlp(normalized)

    inputs = (hidden(), support.leaf(y), *map(support.leaf, parts))
    want, _ = both_ways(block, plain, *inputs)
    got, _ = both_ways(block, packed, *inputs)
    assert support.equal(got, want)


def everything(block: Block, x: Tensor) -> tuple[Tensor, ...]:
    scale = torch.zeros(BATCH, HIDDEN, dtype=BF16)
    site = block.qkv.mx_site
    normalized = mx_norm.ln_modulate_pack(x, scale, scale, block.qkv.plan, site=site)
    return *block.fused_qkv(normalized), *block.fused_mlp(normalized)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_packs_no_column(mode: Callable[[], Any]) -> None:
    block, x = Block(mxfp6()), hidden()
    trained = [out.detach() for out in everything(block, x)]
    with mode(), census(block) as counted:
        outputs = everything(block, x)
    assert support.equal(outputs, trained)
    roles = {key[1] for key in counted.quantizations}
    assert roles == {"input:row", "weight:row"}
    assert counted.total_gemms() == 3


def test_recomputation_packs_columns_in_the_second_pass_only() -> None:
    from torch.utils.checkpoint import checkpoint

    block = Block(mxfp6())
    want, _ = both_ways(block, lambda x: everything(block, x), hidden())
    got, counted = both_ways(
        block,
        lambda x: checkpoint(lambda x: everything(block, x), x, use_reentrant=False),
        hidden(),
    )
    assert support.equal(got, want)
    assert counted.total_gemms() == 9 + 3


def test_a_backward_after_rows_only_raises(block: Block) -> None:
    scale = torch.zeros(BATCH, HIDDEN, dtype=BF16)
    plan = block.qkv.plan
    normalized = mx_norm.ln_modulate_pack(hidden(), scale, scale, plan, columns=False)
    with pytest.raises(MissingOperandError, match="columns 'absent'"):
        block.fused_qkv(normalized)


@pytest.mark.parametrize("frozen", ["weight", "input"])
def test_what_needs_no_gradient_gets_no_column_and_no_gemm(block: Block, frozen: str) -> None:
    x = hidden()
    if frozen == "input":
        x = x.detach()
    else:
        block.qkv.weight.requires_grad_(False)
    with census(block) as counted:
        q, k, v = block.fused_qkv(x)
        (q.sum() + k.sum() + v.sum()).backward()
    directions = {key[1] for key in counted.gemms}
    assert directions == {"fprop", "wgrad" if frozen == "input" else "dgrad"}
    assert block.q.grad is not None
    assert block.qkv.bias is not None
    assert block.qkv.bias.grad is not None


def test_weight_gradients_add_to_main_grad(block: Block) -> None:
    want, _ = both_ways(block, block.fused_mlp, hidden())
    for linear in (block.fc1, block.fc2):
        linear.gradient_accumulation_fusion = True  # type: ignore[assignment]
        linear.weight.main_grad = torch.ones(linear.weight.shape)  # type: ignore[attr-defined]
        linear.weight.grad_added_to_main_grad = False  # type: ignore[attr-defined]
    both_ways(block, block.fused_mlp, hidden())
    names = [name for name, _ in block.named_parameters()]
    for name in ("fc1", "fc2"):
        weight = getattr(block, name).weight
        assert weight.grad_added_to_main_grad
        grad = want[2 + names.index(f"{name}.weight")].float()
        assert support.worst(weight.main_grad - 1, grad) <= 2**-7 * float(grad.abs().max())


def test_the_first_gradient_overwrites_a_stale_main_grad() -> None:
    """defer_grad_buffer_zero leaves the last iteration's gradient there; here NaN."""
    block, grads = Block(mxfp6()), []
    for stale in (False, True):
        for linear in (block.fc1, block.fc2):
            linear.gradient_accumulation_fusion = True  # type: ignore[assignment]
            linear.weight.main_grad = torch.full(  # type: ignore[attr-defined]
                linear.weight.shape, float("nan") if stale else 0.0
            )
            linear.weight.main_grad_is_stale = stale  # type: ignore[attr-defined]
        for _ in range(2):  # the second micro-batch adds
            block.fused_mlp(hidden())[0].sum().backward()
        grads.append([linear.weight.main_grad for linear in (block.fc1, block.fc2)])
        assert not block.fc1.weight.main_grad_is_stale  # type: ignore[attr-defined]
    assert support.equal(*grads)


def test_unused_outputs_and_expanded_gradients(block: Block) -> None:
    x = hidden()
    q, _, _ = block.fused_qkv(x)
    q.sum().backward()
    block.fresh()
    y = hidden()
    q, _, _ = block.plain_qkv(y)
    q.sum().backward()
    assert x.grad is not None
    assert support.equal((x.grad,), (y.grad,))


def refused(problem: str | None, text: str) -> None:
    assert problem is not None
    assert text in problem


def test_refusals_name_argument_got_and_expected() -> None:
    block = Block(mxfp6())
    x = hidden()
    plain = torch.nn.Linear(HIDDEN, 3 * HEADS * DIM, dtype=BF16)
    tail = (block.q, block.k, TABLE.cos_sin)
    refused(mx_qkv.problem(x, plain, *tail), "linear_qkv: got Linear, expected a linear in an MX")
    high = MXLinear(HIDDEN, 192, mxfp8(backward="bf16"), dtype=BF16)
    refused(mx_qkv.problem(x, high, *tail), "linear_qkv: backward: got bf16, expected mx")
    slow = MXLinear(HIDDEN, 192, mxfp8(packer="reference"), dtype=BF16)
    refused(mx_qkv.problem(x, slow, *tail), "packer: got reference, expected auto or triton")
    refused(mx_qkv.problem(x[0], block.qkv, *tail), "x shape: got [4, 64], expected [S, B, 64]")
    refused(mx_qkv.problem(x.double(), block.qkv, *tail), "x dtype: got torch.float64")
    refused(mx_qkv.problem(x[:0], block.qkv, *tail), "at least one element")
    odd = torch.ones(48, dtype=BF16)
    refused(mx_qkv.problem(x, block.qkv, odd, odd, TABLE.cos_sin), "head dimension: got 48 of 192")
    double = (block.q.double(), block.k, TABLE.cos_sin)
    refused(mx_qkv.problem(x, block.qkv, *double), "q_weight dtype")
    refused(mx_qkv.problem(x[:4], block.qkv, *tail), "cos_sin shape: got [8, 1, 32]")
    refused(mx_mlp.problem(x, block.fc1, block.qkv), "linear_fc2 weight: got [192, 64]")
    with pytest.raises(ValueError, match=r"mx_mlp: linear_fc1: got Linear"):
        mx_mlp.mx_mlp(x, plain, block.fc2)
    zero = torch.zeros(BATCH, HIDDEN, dtype=BF16)
    refused(mx_norm.problem(x.double(), zero, zero, mxfp6()), "expected up to fp32")
    other = mx_norm.ln_modulate_pack(x, zero, zero, mxfp8())
    refused(mx_qkv.problem(other, block.qkv, *tail), "packed input: got format=e4m3")


def test_hooks_that_would_be_skipped_are_refused() -> None:
    block = Block(mxfp6())
    block.fc1.register_forward_hook(lambda *_: None)
    refused(mx_mlp.problem(hidden(), block.fc1, block.fc2), "linear_fc1: hooks: got forward_hooks")
