# SPDX-License-Identifier: Apache-2.0
"""Matrices on which packers are compared, and every combination of specs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mxflux.mx import FORMATS, LAYOUTS, QuantSpec, ScaleMode


def texts(kind: str, spec: QuantSpec) -> tuple[str, str]:
    """Row and column spec texts of one kind of packing."""
    return str(spec) if kind != "column" else "", str(spec) if kind != "row" else ""


def exhaustive(device: str) -> torch.Tensor:
    """Every bf16 pattern, once as a whole block and once among neighbours of its size."""
    patterns = torch.arange(65536, dtype=torch.int32, device=device).to(torch.int16)
    whole = patterns[:, None].expand(-1, 32)
    near = (patterns[:, None] & ~0x7F) | torch.arange(0, 128, 4, device=device).to(torch.int16)
    return torch.cat((whole, near)).view(torch.bfloat16).reshape(4096, 1024)


def adversarial(rows: int, cols: int, device: str) -> torch.Tensor:
    """Noise over 250 binades with zeros, -0, NaN, infinities, subnormals and 3.3e38 strewn in."""
    generator = torch.Generator(device).manual_seed(1)
    power = torch.randint(-126, 126, (rows, cols // 32, 1), generator=generator, device=device)
    noise = torch.randn(rows, cols // 32, 32, generator=generator, device=device)
    x = (noise * torch.exp2(power.float())).reshape(rows, cols)
    specials = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, 2.0**-126, 3.3e38)
    places = torch.rand(rows, cols, generator=generator, device=device)
    for index, value in enumerate(specials):
        x[(places > index * 1e-3) & (places < index * 1e-3 + 4e-4)] = value
    return x.bfloat16()


def check_cases() -> Iterator[tuple[str, QuantSpec, QuantSpec]]:
    """Name, row spec and column spec of every combination that is compared."""
    for name in FORMATS:
        for mode in ScaleMode:
            spec = QuantSpec(name, mode.value)
            yield f"{name} {mode.value}", spec, spec
        for points in (16, 32):
            turned = QuantSpec(name, hadamard=points)
            yield f"{name} rotated {points}", turned, turned
        random = QuantSpec(name, stochastic=True)
        yield f"{name} stochastic", random, random
        square = QuantSpec(name, block_2d=True)
        yield f"{name} square", square, square
    for layout in LAYOUTS.values():
        if layout.formats:
            spec = QuantSpec(layout.formats[0], layout=layout.name)
            yield f"{layout.formats[0]} {layout.name}", spec, spec


def inputs(device: str) -> dict[str, tuple[torch.Tensor, bool]]:
    """Label -> matrix and whether every case is compared on it, or one a format."""
    return {
        "every bf16 pattern [4096, 1024]": (exhaustive(device), True),
        "adversarial bf16 [4096, 3072]": (adversarial(4096, 3072, device), True),
        "random bf16 [4097, 3008]": (torch.randn(4097, 3008, device=device).bfloat16(), False),
        "random fp32, transposed [1024, 1056]": (torch.randn(1056, 1024, device=device).t(), False),
    }


def cases_for(everything: bool) -> list[tuple[str, QuantSpec, QuantSpec]]:
    """All cases, or the first of each format."""
    cases = list(check_cases())
    return cases if everything else [c for c in cases if c[0].endswith(" floor")]
