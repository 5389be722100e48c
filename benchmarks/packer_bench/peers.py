# SPDX-License-Identifier: Apache-2.0
"""What else packs MX: torch.compile of the reference, torchao."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mxflux.fusions import timing
from mxflux.mx import FORMATS, reference
from mxflux.mx.codes import pack_codes


def compiled_reference(kind: str, name: str) -> Callable[[torch.Tensor], Any]:
    """torch.compile of the reference packer, both blobs for `dual`."""
    fmt = FORMATS[name]

    def one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes, scales = reference.quantize(x, fmt)
        return pack_codes(codes, fmt.bits), scales

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*one(x), *one(x.t()))

    return torch.compile(one if kind == "row" else both, fullgraph=True)


def torchao_packer(name: str) -> Callable[[torch.Tensor], Any] | None:
    """torchao's to_mx along the last dimension (rows only), or None when it is not installed."""
    if importlib.util.find_spec("torchao") is None:
        return None
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    names = {"e2m1": torch.float4_e2m1fn_x2, "e2m3": "fp6_e2m3", "e4m3": torch.float8_e4m3fn}
    return lambda x: to_mx(x, names[name], 32, ScaleCalculationMode.FLOOR)


def peers(x: torch.Tensor, kind: str, name: str) -> Iterator[tuple[str, float | str]]:
    """Name and microseconds of every peer, or why it has none."""
    yield "torch.compile of the reference", attempt(compiled_reference(kind, name), x)
    if kind != "row":
        return
    packer = torchao_packer(name)
    if packer is None:
        yield "torchao to_mx", "not installed"
        return
    version = importlib.metadata.version("torchao")
    yield f"torchao {version} to_mx", attempt(packer, x)
    yield f"torchao {version} to_mx, torch.compile", attempt(torch.compile(packer), x)


def attempt(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float | str:
    """Microseconds, or the error of a peer that does not run here."""
    try:
        return timing.device_time(lambda: run(x), repeats=10, warmup=2)
    except (RuntimeError, ImportError, AssertionError, TypeError) as error:
        return f"failed: {type(error).__name__}"
