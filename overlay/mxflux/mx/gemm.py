# SPDX-License-Identifier: Apache-2.0
"""gemm(): D = A B^T (+ bias) of two packed operands through the backend that is named."""

from __future__ import annotations

import torch

from mxflux.mx import tally
from mxflux.mx.backends import Backend, backend_named
from mxflux.mx.blob import MXBlob
from mxflux.mx.errors import MissingOperandError, MXUnavailableError, MXValueError
from mxflux.mx.spec import QuantSpec

OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def gemm(
    a: MXBlob,
    b: MXBlob,
    *,
    backend: str,
    out_dtype: torch.dtype = torch.bfloat16,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    accumulate: bool = False,
    site: torch.Tensor | None = None,
    direction: str = "fprop",
) -> torch.Tensor:
    """A (M, K) and B (N, K) -> A B^T (+ bias (N,)), (M, N) in out_dtype.

    backend: emulated, triton, hipblaslt or aiter; it runs or raises, none steps in. out: written
    and returned instead (bf16, fp16 or fp32, any strides), or added to when `accumulate`. Backends
    that return fp32 round once, after bias and sum. K = 0 gives zeros. site, direction: who is
    counted in a census. Raises MXValueError, MissingOperandError, MXUnavailableError.
    """
    if accumulate and out is None:
        raise MXValueError("gemm: accumulate needs out")
    tensors = (a.data, a.scale, b.data, b.scale, bias, site)
    lengths, specs = (a.rows, b.rows, a.k, b.k), (str(a.spec), str(b.spec))
    compiling = torch.compiler.is_compiling()
    if out is None:
        call = _gemm_op if compiling else _gemm
        return call(*tensors, *lengths, *specs, backend, out_dtype, direction)
    into = _gemm_into_op if compiling else _gemm_into
    into(*tensors, *lengths, *specs, backend, out, accumulate, direction)
    return out


def check_operands(a: MXBlob, b: MXBlob, bias: torch.Tensor | None) -> None:
    """Raise unless A (M, K), B (N, K) and bias (N,) can be multiplied and added."""
    if a.k != b.k:
        raise MXValueError(f"gemm: A is ({a.rows}, {a.k}), B is ({b.rows}, {b.k}): K must be equal")
    if a.spec.hadamard != b.spec.hadamard:
        raise MXValueError(
            f"gemm: A is rotated by {a.spec.hadamard} points, B by {b.spec.hadamard}: "
            "both operands or neither, the product is wrong otherwise"
        )
    if a.data.device != b.data.device:
        raise MXValueError(f"gemm: A is on {a.data.device}, B on {b.data.device}")
    for name, blob in (("A", a), ("B", b)):
        if blob.data.numel() == 0 and blob.rows and blob.k:
            raise MissingOperandError(
                f"gemm: {name} ({blob.rows}, {blob.k}) was never packed in this direction"
            )
    if bias is not None and tuple(bias.shape) != (b.rows,):
        raise MXValueError(f"gemm: bias must be ({b.rows},), got {tuple(bias.shape)}")


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in OUT_DTYPES:
        valid = ", ".join(str(d) for d in OUT_DTYPES)
        raise MXValueError(f"gemm: results are {valid}, not {dtype}")


def _ready(name: str, a: MXBlob, b: MXBlob) -> Backend:
    backend = backend_named(name)
    why = backend.missing(a.data.device) or backend.refusal(a, b)
    if why is not None:
        raise MXUnavailableError(
            f"GEMM backend {name!r}: {why}; `python -m mxflux.mx.doctor` lists what runs here"
        )
    return backend


def _product(
    a: MXBlob, b: MXBlob, bias: torch.Tensor | None, name: str, wanted: torch.dtype
) -> torch.Tensor:
    check_operands(a, b, bias)
    _check_dtype(wanted)
    backend = _ready(name, a, b)
    # With a bias to add, the fp32 accumulator is asked for: one rounding, at the end.
    dtype = backend.result_dtype(wanted if bias is None else torch.float32)
    if a.rows == 0 or b.rows == 0 or a.k == 0:
        result = torch.zeros(a.rows, b.rows, dtype=dtype, device=a.data.device)
    else:
        result = backend.multiply(a, b, dtype)
    return result if bias is None else result.float() + bias.float()


def _record(site: torch.Tensor | None, direction: str, a: MXBlob, b: MXBlob, backend: str) -> None:
    if site is not None:
        formats = "/".join(dict.fromkeys((a.spec.format, b.spec.format)))
        tally.record_gemm(site, direction, formats, backend)


def _gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    bias: torch.Tensor | None,
    site: torch.Tensor | None,
    m: int,
    n: int,
    k: int,
    k_b: int,
    a_spec: str,
    b_spec: str,
    backend: str,
    out_dtype: torch.dtype,
    direction: str,
) -> torch.Tensor:
    left = MXBlob(a, a_scale, m, k, QuantSpec.parse(a_spec))
    right = MXBlob(b, b_scale, n, k_b, QuantSpec.parse(b_spec))
    result = _product(left, right, bias, backend, out_dtype).to(out_dtype)
    _record(site, direction, left, right, backend)
    return result


def _gemm_into(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    bias: torch.Tensor | None,
    site: torch.Tensor | None,
    m: int,
    n: int,
    k: int,
    k_b: int,
    a_spec: str,
    b_spec: str,
    backend: str,
    out: torch.Tensor,
    accumulate: bool,
    direction: str,
) -> None:
    if tuple(out.shape) != (m, n) or out.device != a.device:
        raise MXValueError(
            f"gemm: out must be ({m}, {n}) on {a.device}, got {tuple(out.shape)} on {out.device}"
        )
    left = MXBlob(a, a_scale, m, k, QuantSpec.parse(a_spec))
    right = MXBlob(b, b_scale, n, k_b, QuantSpec.parse(b_spec))
    # A sum rounds once only if the backend hands over more bits than `out` keeps.
    wanted = torch.float32 if accumulate else out.dtype
    _check_dtype(out.dtype)
    result = _product(left, right, bias, backend, wanted)
    _record(site, direction, left, right, backend)
    with torch.no_grad():
        out.add_(result) if accumulate else out.copy_(result)


_gemm_op = torch.library.custom_op("mxflux::gemm", _gemm, mutates_args=())
_gemm_into_op = torch.library.custom_op("mxflux::gemm_into", _gemm_into, mutates_args=("out",))


@_gemm_op.register_fake
def _gemm_fake(
    a: torch.Tensor,
    a_scale: torch.Tensor,  # noqa: ARG001 - only the shape of the result is wanted
    b: torch.Tensor,  # noqa: ARG001
    b_scale: torch.Tensor,  # noqa: ARG001
    bias: torch.Tensor | None,  # noqa: ARG001
    site: torch.Tensor | None,  # noqa: ARG001
    m: int,
    n: int,
    k: int,  # noqa: ARG001
    k_b: int,  # noqa: ARG001
    a_spec: str,  # noqa: ARG001
    b_spec: str,  # noqa: ARG001
    backend: str,  # noqa: ARG001
    out_dtype: torch.dtype,
    direction: str,  # noqa: ARG001
) -> torch.Tensor:
    return a.new_empty((m, n), dtype=out_dtype)
