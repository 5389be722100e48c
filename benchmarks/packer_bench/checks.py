# SPDX-License-Identifier: Apache-2.0
"""Byte for byte against the reference, before anything is timed."""

from __future__ import annotations

import statistics
import time

import torch

from mxflux.mx import FORMATS, MXBlob, QuantSpec, gemm, quantize_dual, quantize_rows, rng_state
from mxflux.mx.packers import reference_pack
from mxflux.mx.triton_packers import pack
from packer_bench.ahead import capability, compile_all
from packer_bench.inputs import cases_for, inputs


def warm_cache(matrices: dict[str, tuple[torch.Tensor, bool]]) -> None:
    """Compile every kernel of the checks."""
    sm = capability()
    compile_all(
        {
            (tuple(x.shape), tuple(x.stride()), x.dtype, str(row), str(col), None, sm)
            for x, everything in matrices.values()
            for _, row, col in cases_for(everything)
        }
    )


def compare(label: str, x: torch.Tensor, row: QuantSpec, col: QuantSpec, rng: torch.Tensor) -> None:
    """Both packers on x: the same bytes, or SystemExit naming what differs."""
    packers = ("triton", "reference")
    blobs = [quantize_dual(x, row, col, rng=rng, packer=p, pad=True) for p in packers]
    for side, got, expected in zip(("row", "column"), *blobs, strict=True):
        for part in ("data", "scale"):
            if not torch.equal(getattr(got, part), getattr(expected, part)):
                raise SystemExit(f"{label}: {side} {part} differs from the reference")


def check_all(device: str) -> list[str]:
    """Compare every packer with the reference; a line for each input, or SystemExit."""
    matrices = inputs(device)
    warm_cache(matrices)
    rng = rng_state(20, (3 << 32) + 7, device)
    lines = []
    for label, (x, everything) in matrices.items():
        cases = cases_for(everything)
        for name, row, col in cases:
            compare(f"{label}: {name}", x, row, col, rng)
        lines.append(f"{label}: {len(cases)} combinations, row and column, 0 bytes differ")
    whole = matrices["every bf16 pattern [4096, 1024]"][0]
    return [*lines, check_devices(whole), check_large(device)]


def check_devices(x: torch.Tensor) -> str:
    """The reference itself gives the same bytes here and on the CPU."""
    for name in FORMATS:
        text = str(QuantSpec(name))
        here, there = (reference_pack(v, None, text, "") for v in (x, x.cpu()))
        if not all(torch.equal(a.cpu(), b) for a, b in zip(here, there, strict=True)):
            raise SystemExit(f"the reference of {name} differs between {x.device} and the CPU")
    return "the reference on this device and on the CPU: every bf16 pattern, 0 bytes differ"


def check_large(device: str) -> str:
    """A matrix of more than 2**31 elements: its first and last rows, in both blobs."""
    rows, cols = 720_000, 3072
    x = torch.empty(rows, cols, dtype=torch.bfloat16, device=device)
    for part in x.split(65536):
        part.normal_()
    text = str(QuantSpec("e2m1"))
    data, scale, data_t, scale_t = pack(x, None, text, text)
    for at in (slice(0, 64), slice(rows - 64, rows)):
        expected = reference_pack(x[at], None, text, text)
        byte, group = slice(at.start // 2, at.stop // 2), slice(at.start // 32, at.stop // 32)
        got = (data[at], scale[at], data_t[:, byte], scale_t[:, group])
        if not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True)):
            raise SystemExit(f"{rows} x {cols}: rows {at} differ from the reference")
    return f"{rows} x {cols} = {rows * cols:,} elements: first and last 64 rows, 0 bytes differ"


def check_gemm(device: str) -> list[str]:
    """dot_scaled and emulated against the dequantized product in fp64: relative error."""
    lines = []
    for name in ("e2m1", "e4m3", "e5m2", "e2m3", "e3m2"):
        a, b = (
            quantize_rows(torch.randn(rows, 3072, device=device).bfloat16(), QuantSpec(name))
            for rows in (1000, 520)
        )
        exact = a.values().double() @ b.values().double().t()
        for backend in ("emulated", "triton"):
            if backend == "triton" and name in {"e2m3", "e3m2"}:
                continue
            got = gemm(a, b, backend=backend, out_dtype=torch.float32).double()
            error = float((got - exact).norm() / exact.norm())
            if error > 1e-3:
                raise SystemExit(f"gemm {backend} {name}: relative error {error:.2e} against fp64")
            lines.append(f"| {backend} | {name} | {error:.1e} | {gemm_time(a, b, backend):.0f} |")
    return lines


def gemm_time(a: MXBlob, b: MXBlob, backend: str) -> float:
    """Microseconds of one small GEMM: correctness, not speed, is the point here."""
    # Wall time: the emulated backend waits for the device itself, so events show nothing more.
    gemm(a, b, backend=backend)
    samples = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        gemm(a, b, backend=backend)
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e6)
    return statistics.median(samples)
