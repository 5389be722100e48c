# SPDX-License-Identifier: Apache-2.0
"""Why an op cannot take its arguments: None, or one sentence with argument, got, expected.

Ops raise ValueError with the sentence; gates in mode auto decline with it. The checks read only
metadata, so a tracer can run them.
"""

from __future__ import annotations

import torch

from mxflux.fusions.launch import INTERPRETER

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
MAX_HEAD_DIM = 256
HEAD_DIM_MULTIPLE = 16
MAX_HIDDEN = 8192
MAX_PROGRAMS = 2**31 - 1
"""CUDA's limit of programs on axis 0."""

HIP_THREADS = 2**32
"""HIP's limit of programs times threads on an axis."""


def expect(name: str, got: object, expected: object) -> str:
    """The one form of every message."""
    return f"{name}: got {got}, expected {expected}"


def first(*problems: str | None) -> str | None:
    """The first problem, or None."""
    return next((problem for problem in problems if problem is not None), None)


def require(problem: str | None, op: str) -> None:
    """Raise ValueError when there is a problem."""
    if problem is not None:
        raise ValueError(f"{op}: {problem}")


def shape(name: str, tensor: torch.Tensor, expected: tuple[int | str, ...]) -> str | None:
    """Strings in `expected` stand for any size."""
    got = tuple(tensor.shape)
    same = len(got) == len(expected) and all(
        isinstance(want, str) or have == want for have, want in zip(got, expected, strict=True)
    )
    return None if same else expect(f"{name} shape", list(got), _sizes(expected))


def floating(name: str, tensor: torch.Tensor) -> str | None:
    """bf16, fp16, fp32, or fp64 (computed in fp64, for gradient checks)."""
    if tensor.dtype in FLOATS:
        return None
    return expect(f"{name} dtype", tensor.dtype, "one of " + ", ".join(map(str, FLOATS)))


def same_dtype(name: str, tensor: torch.Tensor, other: str, like: torch.Tensor) -> str | None:
    """Both tensors have one dtype."""
    if tensor.dtype == like.dtype:
        return None
    return expect(f"{name} dtype", tensor.dtype, f"{like.dtype}, as {other}")


def parameter_dtype(name: str, tensor: torch.Tensor, x: torch.Tensor) -> str | None:
    """A small parameter: x's dtype or fp32 (fp64 only with fp64, which computes in fp64)."""
    allowed = (x.dtype,) if x.dtype == torch.float64 else (x.dtype, torch.float32)
    if tensor.dtype in allowed:
        return None
    return expect(f"{name} dtype", tensor.dtype, " or ".join(map(str, dict.fromkeys(allowed))))


def same_device(name: str, tensor: torch.Tensor, x: torch.Tensor) -> str | None:
    """All tensors of a call live on one device."""
    return None if tensor.device == x.device else expect(f"{name} device", tensor.device, x.device)


def head_dim(name: str, size: int) -> str | None:
    """Multiple of 16 (whole 32-byte vectors of bf16) up to 256 (one tile)."""
    if size > 0 and size % HEAD_DIM_MULTIPLE == 0 and size <= MAX_HEAD_DIM:
        return None
    return expect(
        f"{name} head dimension", size, f"a multiple of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}"
    )


def hidden(name: str, size: int) -> str | None:
    """Up to 8192: a row stays in registers."""
    if 0 < size <= MAX_HIDDEN:
        return None
    return expect(f"{name} hidden size", size, f"1 to {MAX_HIDDEN}")


def runnable(name: str, tensor: torch.Tensor) -> str | None:
    """Kernels run on a GPU, or on CPU tensors in Triton's interpreter."""
    if tensor.device.type == ("cpu" if INTERPRETER else "cuda"):
        return None
    wanted = "cpu (TRITON_INTERPRET=1 is set)" if INTERPRETER else "cuda"
    hint = "" if INTERPRETER else "; on the CPU set TRITON_INTERPRET=1 before importing mxflux"
    return expect(f"{name} device", tensor.device, wanted + hint)


def programs(name: str, count: int, num_warps: int) -> str | None:
    """Programs on axis 0 against the driver's limits."""
    limit = MAX_PROGRAMS
    if torch.version.hip is not None:
        limit = HIP_THREADS // (64 * num_warps) - 1
    return None if count <= limit else expect(f"{name} programs", count, f"at most {limit}")


def all_unit_inner(*tensors: torch.Tensor) -> bool:
    """Whether unit_inner would copy none of them."""
    return all(t.stride(-1) == 1 or t.shape[-1] == 1 or t.is_contiguous() for t in tensors)


def unit_inner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself when its last stride is 1 (any other strides), else a contiguous copy."""
    return tensor if all_unit_inner(tensor) else tensor.contiguous()


def _sizes(sizes: tuple[int | str, ...]) -> str:
    return "[" + ", ".join(map(str, sizes)) + "]"
