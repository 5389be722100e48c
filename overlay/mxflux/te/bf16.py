# SPDX-License-Identifier: Apache-2.0
"""The GEMM of a direction that a recipe leaves in BF16, next to quantized ones."""

from __future__ import annotations

import torch

from mxflux.mx import tally


def bf16_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    accumulate: bool = False,
    site: torch.Tensor | None = None,
    direction: str = "fprop",
) -> torch.Tensor:
    """A (M, K) and B (N, K) -> A B^T + bias (M, N), with `mxflux.mx.gemm`'s meaning of the rest.

    Accumulates in fp32 and rounds once. Counted in a census as format `bf16` by `torch`.
    """
    if site is not None:
        tally.record_gemm(site, direction, "bf16", "torch")
    if a.device.type == "cuda" and a.dtype == torch.bfloat16:
        result = torch.mm(a, b.t(), out_dtype=torch.float32)
    else:
        result = a.float() @ b.float().t()
    if bias is not None:
        result = result + bias.float()
    if out is None:
        return result.to(out_dtype)
    return out.add_(result) if accumulate else out.copy_(result)
