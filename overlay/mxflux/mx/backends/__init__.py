# SPDX-License-Identifier: Apache-2.0
"""GEMM backends, chosen by name. One that cannot do what it is asked raises; none steps in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mxflux.mx.backends import aiter_gemm, emulated, hipblaslt, triton_dot
from mxflux.mx.errors import MXValueError

if TYPE_CHECKING:
    import torch

    from mxflux.mx.blob import MXBlob


class Backend(Protocol):
    """What a backend module offers.

    FORMATS: elements it multiplies. `missing(device)`: why it cannot run there, or None.
    `refusal(a, b)`: why it cannot multiply these operands, or None. `result_dtype(wanted)`: what
    `multiply` returns when `wanted` is asked for. `multiply(a, b, dtype)`: A (M, K) times
    B (N, K) transposed, (M, N).
    """

    NAME: str
    FORMATS: tuple[str, ...]

    def missing(self, device: torch.device) -> str | None: ...

    def refusal(self, a: MXBlob, b: MXBlob) -> str | None: ...

    def result_dtype(self, wanted: torch.dtype) -> torch.dtype: ...

    def multiply(self, a: MXBlob, b: MXBlob, dtype: torch.dtype) -> torch.Tensor: ...


BACKENDS: dict[str, Backend] = {
    module.NAME: module for module in (emulated, triton_dot, hipblaslt, aiter_gemm)
}


def backend_named(name: str) -> Backend:
    """The backend called `name`; MXValueError names the valid ones."""
    if name not in BACKENDS:
        raise MXValueError(f"unknown GEMM backend {name!r}; valid: {', '.join(BACKENDS)}")
    return BACKENDS[name]
