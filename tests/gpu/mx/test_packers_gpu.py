# SPDX-License-Identifier: Apache-2.0
"""On a GPU: packers byte for byte against the reference, GEMM backends against fp64, the linear.

Run as `PYTHONPATH=overlay pytest tests/gpu/mx`. `benchmarks/packers.py` compares far more inputs.
"""

from __future__ import annotations

import pytest
import torch

from mxflux.mx import FORMATS, LAYOUTS, QuantSpec, gemm, quantize_dual, quantize_rows, rng_state
from mxflux.mx.backends import BACKENDS
from mxflux.mx.linear import MXLinear
from mxflux.mx.plans import mxfp4, mxfp6

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
SPECS = [
    *(QuantSpec(name) for name in FORMATS),
    *(QuantSpec(name, "rceil", hadamard=32, stochastic=True) for name in FORMATS),
    QuantSpec("e2m1", "even", block_2d=True),
    *(QuantSpec(layout.formats[0], layout=n) for n, layout in LAYOUTS.items() if layout.formats),
]


def noise(rows: int, cols: int) -> torch.Tensor:
    g = torch.Generator("cuda").manual_seed(0)
    power = torch.randint(-140, 127, (rows, 1), generator=g, device="cuda").float()
    x = torch.randn(rows, cols, generator=g, device="cuda") * torch.exp2(power)
    x[3, 5], x[4, 6], x[7] = float("nan"), float("inf"), -0.0
    return x.bfloat16()


@pytest.mark.parametrize("shape", [(1024, 3072), (528, 416)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_packers_equal_the_reference(spec: QuantSpec, shape: tuple[int, int]) -> None:
    x, rng = noise(*shape), rng_state(3, 4, "cuda")
    blobs = [
        quantize_dual(x, spec, spec, rng=rng, packer=packer, pad=True)
        for packer in ("triton", "reference")
    ]
    for got, expected in zip(*blobs, strict=True):
        assert got.scale.equal(expected.scale)
        assert got.data.equal(expected.data)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_gemm_backends_against_fp64(backend: str, name: str) -> None:
    why = BACKENDS[backend].missing(torch.device("cuda"))
    if why or name not in BACKENDS[backend].FORMATS or backend == "aiter":
        pytest.skip(f"{backend} {name}: {why or 'not in its formats, or in its own layouts only'}")
    g = torch.Generator("cuda").manual_seed(1)
    a, b = (
        quantize_rows(torch.randn(rows, 1056, generator=g, device="cuda"), QuantSpec(name))
        for rows in (300, 200)
    )
    exact = a.values().double() @ b.values().double().t()
    got = gemm(a, b, backend=backend, out_dtype=torch.float32).double()
    assert float((got - exact).norm() / exact.norm()) < 1e-3


@pytest.mark.parametrize("plan", [mxfp4(), mxfp4("triton"), mxfp6()], ids=lambda p: p.backend)
def test_linear_trains_and_compiles_to_the_same_bits(plan: object) -> None:
    torch.manual_seed(0)
    layer = MXLinear(256, 384, plan, device="cuda", dtype=torch.bfloat16)  # type: ignore[arg-type]
    x = torch.randn(96, 256, device="cuda").bfloat16().requires_grad_()
    results = []
    for call in (layer, torch.compile(layer, fullgraph=True)):
        layer.rng.copy_(torch.tensor([1, 0]))
        layer.zero_grad()
        x.grad = None
        y = call(x)
        y.sum().backward()
        results.append((y.detach(), x.grad, layer.weight.grad))
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager, compiled)
