# SPDX-License-Identifier: Apache-2.0
"""The packers with a producer in front: the bytes of the producer's output, packed; its sums."""

from __future__ import annotations

import fusions_support as support
import pytest
import torch

from mxflux.fusions import gate_residual, ln_modulate, mx_norm, mx_pack, norm_rope_qkv, reference
from mxflux.fusions.kernels import mx_chains
from mxflux.mx.blob import MXBlob
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6
from mxflux.mx.packers import reference_pack
from mxflux.mx.spec import QuantSpec
from mxflux.mx.triton_packers import geometry

Tensor = torch.Tensor
BF16 = torch.bfloat16
RNG = torch.tensor([3, 4])
TURNED = QuantSpec("e2m3", hadamard=32)
RANDOM = QuantSpec("e2m1", stochastic=True)
SPECS = {
    "mxfp6": (TURNED, TURNED),
    "mxfp4 input": (QuantSpec("e2m1"), QuantSpec("e2m1", hadamard=16)),
    "mxfp4 gradient": (RANDOM, QuantSpec("e2m1", hadamard=16, stochastic=True)),
    "mxfp8": (QuantSpec("e4m3"), QuantSpec("e5m2")),
    "a4w4": (QuantSpec("e2m1", layout=AITER_A4W4_A), QuantSpec("e2m1", layout=AITER_A4W4_B)),
    "a6w6": (
        QuantSpec("e2m3", hadamard=32, layout=AITER_A6W6),
        QuantSpec("e2m3", hadamard=32, layout=AITER_A6W6),
    ),
}


def texts(name: str, kind: str = "dual") -> tuple[str, str]:
    row, col = SPECS[name]
    return str(row) if kind != "column" else "", str(col) if kind != "row" else ""


def packed(x: Tensor, row: str, col: str, rng: Tensor | None = None) -> tuple[Tensor, ...]:
    """The reference packer on a matrix; A6W6's tiles leave bytes that equality ignores at zero."""
    return reference_pack(x, rng, row, col)


def ln_inputs(seq: int = 9, batch: int = 3, width: int = 96) -> tuple[Tensor, Tensor, Tensor]:
    x = support.values("random", seq, batch, width)
    scale, shift = support.values("random", batch, 3 * width, seed=1).chunk(3, -1)[:2]
    return x, scale, shift


@pytest.mark.parametrize("kind", ["row", "column", "dual"])
@pytest.mark.parametrize("name", ["mxfp6", "mxfp4 input", "mxfp8"])
def test_ln_pack_has_the_bytes_of_ln_modulate_packed(name: str, kind: str) -> None:
    x, scale, shift = ln_inputs()
    out, mean, rstd = ln_modulate._forward(x, scale, shift, 1e-6)
    found = mx_norm.statistics(x, scale, 1e-6)
    assert support.equal(found, (mean, rstd))
    row, col = texts(name, kind)
    got = mx_pack.ln_pack(x, scale, shift, *found, row, col)
    assert support.equal(got, packed(out.flatten(0, 1), row, col))


@pytest.mark.parametrize("name", ["a4w4", "a6w6"])
def test_layouts_of_aiter(name: str) -> None:
    x, scale, shift = ln_inputs(16, 2)
    out, mean, rstd = ln_modulate._forward(x, scale, shift, 1e-6)
    row, col = texts(name)
    got = mx_pack.ln_pack(x, scale, shift, mean, rstd, row, col)
    assert support.equal(got, packed(out.flatten(0, 1), row, col))


def test_the_gated_residual_in_front_keeps_its_bits() -> None:
    x, scale, shift = ln_inputs()
    y, gate = support.values("random", *x.shape, seed=2), shift
    h, _, mean, rstd = gate_residual._forward(x, y, gate, scale, shift, 1e-6)
    assert support.equal(mx_norm.gated(x, y, gate, 1e-6), (h, mean, rstd))


@pytest.mark.parametrize("kind", ["tiny", "huge", "zero rows", "constant rows"])
def test_ln_pack_of_adversarial_rows(kind: str) -> None:
    x, scale, shift = ln_inputs()
    x = support.values(kind, *x.shape)
    out, mean, rstd = ln_modulate._forward(x, scale, shift, 1e-6)
    row, col = texts("mxfp4 input")
    got = mx_pack.ln_pack(x, scale, shift, mean, rstd, row, col)
    assert support.equal(got, packed(out.flatten(0, 1), row, col))


def test_views_and_guard_bands_are_read_in_place() -> None:
    x, scale, shift = ln_inputs()
    _, mean, rstd = ln_modulate._forward(x, scale, shift, 1e-6)
    row, col = texts("mxfp6")
    want = mx_pack.ln_pack(x, scale, shift, mean, rstd, row, col)
    got = mx_pack.ln_pack(support.guarded(x), scale, support.guarded(shift), mean, rstd, row, col)
    assert support.equal(got, want)


def gelu(x: Tensor) -> Tensor:
    """fp32, each step as the kernel's."""
    near = x.clamp(-1e4, 1e4)
    z = near * (near * near * mx_chains.CUBIC.value + mx_chains.LINEAR.value)
    return x.maximum(near) / (1.0 + torch.exp2(z.clamp(max=127.0)))


def nearly_all(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    """All bytes but those that an exponential's last bit may move."""
    differing = sum(int((a != b).sum()) for a, b in zip(got, want, strict=True))
    return differing <= sum(a.numel() for a in got) // 500


@pytest.mark.parametrize("name", ["mxfp6", "mxfp4 input"])
def test_gelu_pack_has_the_bytes_of_the_activation_packed(name: str) -> None:
    x = support.values("random", 70, 96) * 3
    x[0, :4] = torch.tensor([1e30, -1e30, 0.0, -0.0])
    row, col = texts(name)
    want = packed(gelu(x.float()), row, col)
    got = mx_pack.gelu_pack(x, row, col)
    assert nearly_all(got, want)
    assert support.equal(mx_pack.gelu_pack(support.guarded(x), row, col), got)


def test_the_activation_is_no_less_accurate_than_torchs() -> None:
    x = torch.linspace(-12, 12, 4096).reshape(64, 64).to(BF16)
    spec = QuantSpec("e4m3")
    exact = torch.nn.functional.gelu(x.double(), approximate="tanh")
    torchs = torch.nn.functional.gelu(x, approximate="tanh")
    assert support.error(gelu(x.float()), exact) <= support.error(torchs, exact)

    def error(blobs: tuple[Tensor, ...]) -> float:
        return support.error(MXBlob(*blobs[:2], 64, 64, spec).dequantize(), exact)

    theirs = error(packed(torchs, str(spec), ""))
    assert error(mx_pack.gelu_pack(x, str(spec), "")) <= 1.001 * theirs


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_activation_spoils_its_block_only(bad: float) -> None:
    x = support.values("random", 32, 64)
    x[5, 40] = bad
    row, col = texts("mxfp8")
    _, scale, _, scale_t = mx_pack.gelu_pack(x, row, col)
    assert (scale == 255).nonzero().tolist() == [[5, 1]]
    assert (scale_t == 255).nonzero().tolist() == [[40, 0]]


def gelu_gradient(g: Tensor, x: Tensor) -> Tensor:
    leaf = x.double().requires_grad_()
    return torch.autograd.grad(
        torch.nn.functional.gelu(leaf, approximate="tanh"), leaf, g.double()
    )[0]


def test_gelu_grad_pack_against_fp64() -> None:
    x, g = support.values("random", 70, 96) * 3, support.values("random", 70, 96, seed=1)
    row, col = texts("mxfp8")
    blobs, sums = mx_pack.gelu_grad_pack(g, x, None, row, col, torch.float32)
    exact = gelu_gradient(g, x)
    leaf = support.leaf(x)
    out = torch.nn.functional.gelu(leaf, approximate="tanh")
    chain = torch.autograd.grad(out, leaf, g)[0]
    ours = MXBlob(*blobs[:2], 70, 96, SPECS["mxfp8"][0]).dequantize()
    theirs = MXBlob(*packed(chain, row, "")[:2], 70, 96, SPECS["mxfp8"][0]).dequantize()
    assert support.error(ours, exact) <= 1.001 * support.error(theirs, exact)
    assert sums is not None
    assert support.error(sums, exact.sum(0)) <= support.error(chain.float().sum(0), exact.sum(0))


def test_sums_are_of_what_is_packed_and_bit_identical_from_run_to_run() -> None:
    x, g = support.values("random", 70, 96), support.values("random", 70, 96, seed=1)
    row, col = texts("mxfp4 gradient")
    first, sums = mx_pack.gelu_grad_pack(g, x, RNG, row, col, torch.float32)
    again, more = mx_pack.gelu_grad_pack(g, x, RNG, row, col, torch.float32)
    assert support.equal((*first, sums), (*again, more))
    rows_only, none = mx_pack.gelu_grad_pack(g, x, RNG, row, "")
    assert none is None
    assert support.equal(rows_only[:2], first[:2])
    assert rows_only[2].numel() == rows_only[3].numel() == 0


@pytest.mark.parametrize(
    ("name", "per_sample"), [("mxfp6", False), ("mxfp8", True), ("mxfp4 gradient", False)]
)
def test_qkv_grad_pack_has_the_bytes_of_the_kernel_and_the_packer(
    name: str, per_sample: bool
) -> None:
    seq, batch, heads, dim = 17, 3, 2, 32
    mixed = support.values("random", seq, batch, heads, 3 * dim)
    weights = tuple(support.values("random", dim, seed=s) for s in (1, 2))
    cos_sin = support.table(seq, batch if per_sample else 1, dim).cos_sin
    rstd = norm_rope_qkv._forward(mixed, *weights, cos_sin, 1e-6)[3]
    grads = tuple(support.values("random", seq, batch, heads, dim, seed=s) for s in (3, 4, 5))
    dmixed, *dweights = norm_rope_qkv._backward(*grads, mixed, *weights, cos_sin, rstd)
    row, col = texts(name)
    want = packed(dmixed.reshape(seq * batch, -1), row, col, RNG)
    strided = tuple(support.guarded(g) for g in grads)
    for given in (grads, strided):
        blobs, dq, dk, sums = mx_pack.qkv_grad_pack(
            given, mixed, weights, cos_sin, rstd, RNG, row, col, torch.float32
        )
        assert support.equal(blobs, want)
        torch.testing.assert_close((dq, dk), tuple(dweights), rtol=2**-7, atol=1e-3)
        assert sums is not None
        torch.testing.assert_close(sums, dmixed.float().sum((0, 1)).flatten())


def test_tiles_within_one_position_read_one_row_of_the_table() -> None:
    seq, batch, heads, dim = 2, 32, 1, 32
    mixed = support.values("random", seq, batch, heads, 3 * dim)
    weights = tuple(support.values("random", dim, seed=s) for s in (1, 2))
    cos_sin = support.table(seq, 1, dim).cos_sin
    rstd = norm_rope_qkv._forward(mixed, *weights, cos_sin, 1e-6)[3]
    grads = tuple(support.values("random", seq, batch, heads, dim, seed=s) for s in (3, 4, 5))
    row, col = texts("mxfp8")
    found = [
        mx_pack.qkv_grad_pack(
            grads, mixed, weights, cos_sin, rstd, None, row, col, torch.float32, tiles
        )
        for tiles in ((32, dim, 4), (64, dim, 4))
    ]
    assert support.equal(found[0][0], found[1][0])
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(one, other)


def test_both_norm_weight_gradients_against_fp64() -> None:
    seq, batch, heads, dim = 40, 2, 2, 32
    mixed = support.values("random", seq, batch, heads, 3 * dim)
    weights = tuple(support.values("random", dim, seed=s).float() for s in (1, 2))
    cos_sin = support.table(seq, 1, dim).cos_sin
    rstd = norm_rope_qkv._forward(mixed, *weights, cos_sin, 1e-6)[3]
    grads = tuple(support.values("random", seq, batch, heads, dim, seed=s) for s in (3, 4, 5))
    row = str(QuantSpec("e4m3"))
    _, dq, dk, _ = mx_pack.qkv_grad_pack(grads, mixed, weights, cos_sin, rstd, None, row, "")
    for index, got in enumerate((dq, dk)):
        x = mixed[..., index * dim : (index + 1) * dim].double()
        _, exact = reference.norm_rope_backward(
            grads[index].double(), x, weights[index].double(), cos_sin.double()
        )
        assert support.worst(got, exact) < 1e-5 * float(exact.abs().max())


def test_every_shipped_tile_gives_the_same_bytes() -> None:
    x = support.values("random", 160, 128)
    row, col = texts("mxfp6")
    want = mx_pack.gelu_pack(x, row, col)
    for tiles in ((32, 128, 4), (64, 64, 4), (128, 64, 8)):
        assert support.equal(mx_pack.gelu_pack(x, row, col, tiles), want)


def test_blobs_past_2_to_the_31_elements_are_addressed_in_64_bits() -> None:
    row, col = texts("mxfp4 gradient")
    tile = (64, 64, 4)
    assert not geometry(32768, 12288, (12288, 1), row, col, tile).keywords["LONG"]
    assert geometry(2**18, 2**13, (2**13, 1), row, col, tile).keywords["LONG"]


@pytest.mark.parametrize("name", ["mxfp6", "mxfp4 gradient", "a6w6", "a4w4"])
def test_the_width_of_an_index_changes_no_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, x = support.values("random", 70, 128), support.values("random", 70, 128, seed=1)
    short = mx_pack.gelu_grad_pack(g, x, RNG, *texts(name), BF16)
    plan = mx_pack._plan_gelu_grad(g, x, *texts(name), BF16, None)
    plan.launch.constexprs["LONG"] = True
    monkeypatch.setattr(mx_pack._plans, "get", lambda *_: plan)
    long = mx_pack.gelu_grad_pack(g, x, RNG, *texts(name), BF16)
    assert support.equal(short[0], long[0])
