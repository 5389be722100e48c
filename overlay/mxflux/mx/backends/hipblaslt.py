# SPDX-License-Identifier: Apache-2.0
"""Backend `hipblaslt`: torch.nn.functional.scaled_mm with 1 x 32 block scales, gfx950."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it

from mxflux.mx.layouts import PLAIN

if TYPE_CHECKING:
    from mxflux.mx.blob import MXBlob

NAME = "hipblaslt"
FORMATS = ("e2m1", "e4m3", "e5m2")
#: What scaled_mm takes as MX operands, as torch dtypes over the same bytes.
ELEMENTS = {
    "e2m1": torch.float4_e2m1fn_x2,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def missing(device: torch.device) -> str | None:
    """scaled_mm (torch >= 2.10), a ROCm build, and gfx950."""
    if not hasattr(F, "scaled_mm"):
        return f"torch {torch.__version__} has no torch.nn.functional.scaled_mm"
    if torch.version.hip is None:
        return "this torch is not a ROCm build"
    if device.type != "cuda":
        return f"it needs a GPU tensor, got one on {device}"
    arch = torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    if arch != "gfx950":
        return f"MX formats need gfx950, this is {arch}"
    return None


def refusal(a: MXBlob, b: MXBlob) -> str | None:
    """Plain layout, e2m1 with e2m1 or FP8 with FP8."""
    for spec in (a.spec, b.spec):
        if spec.format not in ELEMENTS:
            return f"it has no {spec.format} operands; valid: {', '.join(ELEMENTS)}"
        if spec.layout != PLAIN:
            return f"it reads layout {PLAIN}, not {spec.layout}"
    if (a.spec.format == "e2m1") != (b.spec.format == "e2m1"):
        return f"it does not mix {a.spec.format} with {b.spec.format}"
    return None


def result_dtype(wanted: torch.dtype) -> torch.dtype:
    """bf16 and fp32 results come straight from the GEMM."""
    return wanted if wanted in {torch.bfloat16, torch.float32} else torch.float32


def multiply(a: MXBlob, b: MXBlob, dtype: torch.dtype) -> torch.Tensor:
    """A B^T in `dtype`."""
    left, right = (blob.data.view(ELEMENTS[blob.spec.format]) for blob in (a, b))
    scales = [blob.scale.view(torch.float8_e8m0fnu) for blob in (a, b)]
    return F.scaled_mm(
        left,
        right.t(),
        scale_a=scales[0],
        scale_recipe_a=F.ScalingType.BlockWise1x32,
        scale_b=scales[1],
        scale_recipe_b=F.ScalingType.BlockWise1x32,
        swizzle_a=F.SwizzleType.NO_SWIZZLE,
        swizzle_b=F.SwizzleType.NO_SWIZZLE,
        output_dtype=dtype,
    )
