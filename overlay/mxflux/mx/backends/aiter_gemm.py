# SPDX-License-Identifier: Apache-2.0
"""Backend `aiter`: ROCm/aiter's gemm_a4w4 (E2M1) and gemm_a6w6 (E2M3) on gfx950, bf16 results.

The two published call forms of gemm_a4w4 are told apart by their parameters: up to 0.1.7 it fills
an `out` whose rows are padded to 32, later it allocates and takes `dtype`. Another form is refused.
Not run by the project: no gfx950 machine. docs/mx.md says what was checked instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

import torch

from mxflux.mx.errors import MXUnavailableError
from mxflux.mx.layouts import AITER_A4W4_A, AITER_A4W4_B, AITER_A6W6, ceil_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from mxflux.mx.blob import MXBlob

NAME = "aiter"
FORMATS = ("e2m1", "e2m3")
MODULES = {
    "e2m1": ("aiter.ops.gemm_op_a4w4", "gemm_a4w4"),
    "e2m3": ("aiter.ops.gemm_op_a6w6", "gemm_a6w6"),
}
ROW_MULTIPLE = 16


def missing(device: torch.device) -> str | None:
    """aiter installed, and a gfx950 GPU."""
    if importlib.util.find_spec("aiter") is None:
        return "the Python package aiter is not installed (pip package amd-aiter, ROCm only)"
    if torch.version.hip is None or device.type != "cuda":
        return f"it needs a ROCm build of torch and a GPU tensor, got one on {device}"
    arch = torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    return None if arch == "gfx950" else f"its FP4 and FP6 kernels need gfx950, this is {arch}"


def refusal(a: MXBlob, b: MXBlob) -> str | None:
    """E2M1 in the a4w4 pair of layouts with rows % 16, or E2M3 in the a6w6 layout."""
    formats, layouts = (a.spec.format, b.spec.format), (a.spec.layout, b.spec.layout)
    if formats == ("e2m3", "e2m3"):
        if layouts != (AITER_A6W6, AITER_A6W6):
            return f"gemm_a6w6 reads layout {AITER_A6W6} on both sides, got {layouts}"
        return None
    if formats != ("e2m1", "e2m1"):
        return f"it multiplies e2m1 with e2m1 or e2m3 with e2m3, got {formats}"
    if layouts != (AITER_A4W4_A, AITER_A4W4_B):
        return f"gemm_a4w4 reads {AITER_A4W4_A} times {AITER_A4W4_B}, got {layouts}"
    if a.rows % ROW_MULTIPLE or b.rows % ROW_MULTIPLE:
        return f"gemm_a4w4 needs M and N to be multiples of {ROW_MULTIPLE}, got {a.rows}, {b.rows}"
    return None


def result_dtype(wanted: torch.dtype) -> torch.dtype:  # noqa: ARG001 - the kernels write bf16 only
    """bf16, whatever is wanted; gemm() converts, adds the bias and accumulates afterwards."""
    return torch.bfloat16


def load(fmt: str) -> Callable[..., torch.Tensor]:
    """The GEMM function of the installed aiter; MXUnavailableError if this aiter has none."""
    module, name = MODULES[fmt]
    try:
        found: Callable[..., torch.Tensor] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise MXUnavailableError(
            f"GEMM backend 'aiter': this aiter has no {module}.{name}: {error}"
        ) from error
    return found


def arguments(
    function: Callable[..., torch.Tensor], a: MXBlob, b: MXBlob
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for this aiter's form of the GEMM."""
    names = list(inspect.signature(function).parameters)
    if names[:4] != ["A", "B", "A_scale", "B_scale"]:
        raise MXUnavailableError(
            f"GEMM backend 'aiter': unknown call form {function.__name__}{names}"
        )
    operands = (a.data, b.data, a.scale, b.scale)
    if a.spec.format == "e2m3":
        if names[4:7] != ["M", "N", "K"]:
            raise MXUnavailableError(f"GEMM backend 'aiter': unknown call form gemm_a6w6{names}")
        return (*operands, a.rows, b.rows, a.padded_k), {}
    four = torch.float4_e2m1fn_x2
    scales = (s.view(torch.float8_e8m0fnu) for s in (a.scale, b.scale))
    typed = (a.data.view(four), b.data.view(four), *scales)
    if "out" in names:
        rows = ceil_to(a.rows, 32)
        out = torch.empty(rows, b.rows, dtype=torch.bfloat16, device=a.data.device)
        return (*typed, out), {"bpreshuffle": True}
    if "dtype" in names:
        return typed, {"dtype": torch.bfloat16, "bpreshuffle": True}
    raise MXUnavailableError(f"GEMM backend 'aiter': unknown call form gemm_a4w4{names}")


def multiply(a: MXBlob, b: MXBlob, dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG001 - bf16 only
    """A B^T, bf16 (M, N)."""
    function = load(a.spec.format)
    positional, keywords = arguments(function, a, b)
    return function(*positional, **keywords)[: a.rows, : b.rows]
