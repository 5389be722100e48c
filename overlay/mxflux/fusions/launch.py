# SPDX-License-Identifier: Apache-2.0
"""One frozen kernel launch: plain the first time, a kept handle later, traceable on request.

Triton's own launch path re-derives the specialization of every argument on every call (about 14
us); a kept handle costs about 2. What a handle was specialized on and this call might change is
checked: the alignment of every pointer, and on HIP the 2 GiB bound on each storage. Everything else
(shapes, strides, dtypes, device, configuration) is part of the key of the plan that owns the
launch.
"""

from __future__ import annotations

import functools
import inspect
import operator
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import triton
from torch.library import wrap_triton

from mxflux.fusions.kernels.reduce import reduce_partials_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = TypeVar("Result")
ALIGNMENT = 16
"""Bytes; Triton emits 16-byte loads for pointers with this alignment."""

BUFFER_BYTES = 2**31 - 1
"""Largest storage for which Triton uses AMD's buffer instructions, as its launcher decides it."""

_address = torch.Tensor.data_ptr

INTERPRETER = not isinstance(reduce_partials_kernel, triton.runtime.JITFunction)
"""Whether kernels run in Triton's CPU interpreter: TRITON_INTERPRET=1 when they were defined."""

_compiling = threading.Lock()


class Launch:
    """`kernel[grid]` with its scalars and constexprs fixed; calling it takes the pointer arguments.

    grid: programs on axis 0, the only axis used (65,535 is the limit of the others); 0 launches
    nothing. scalars: integers. TypeError for a float: Triton passes it as fp32, Inductor as fp64,
    and the arithmetic that it enters follows, so the bits differ. A float belongs in constexprs.
    options: of the compiler, beside num_warps. dependent: the kernel may start while the one before
    it on the stream ends, and waits for its writes itself (`kernels.dependent`). Not when traced:
    Inductor has no such launch and cannot see through the wait; the bits are the same.
    """

    __slots__ = (
        "constexprs",
        "dependent",
        "grid",
        "handle",
        "hip",
        "kernel",
        "options",
        "scalars",
        "tail",
    )

    def __init__(
        self,
        kernel: Any,
        grid: int,
        scalars: Sequence[int],
        constexprs: dict[str, Any],
        num_warps: int,
        *,
        dependent: bool = False,
        **options: Any,
    ) -> None:
        if any(isinstance(scalar, float) for scalar in scalars):
            raise TypeError(f"{kernel.__name__}: scalars: got {tuple(scalars)}, expected integers")
        self.kernel = kernel
        self.grid = (grid, 1, 1)
        self.scalars = tuple(scalars)
        # a kept handle takes constexprs by position, in the kernel's order
        self.constexprs = {n: constexprs[n] for n in kernel.arg_names if n in constexprs}
        self.options = {"num_warps": num_warps, **options}
        self.dependent = {"launch_pdl": True} if dependent else {}
        self.tail = (*self.scalars, *self.constexprs.values())
        self.handle: Any = None
        self.hip = torch.version.hip is not None

    def __call__(self, *pointers: torch.Tensor) -> None:
        """Launch on the current stream of the pointers' device."""
        addresses = list(map(_address, pointers))
        kept = self._keeps_guards(addresses, pointers)
        if kept and self.handle is not None:
            self.handle(*addresses, *self.tail)
        elif self.grid[0] > 0:
            with torch.cuda.device(pointers[0].get_device()):  # -1, the CPU, changes nothing
                if kept:
                    self._launch_and_keep(pointers)
                else:
                    self._launch(pointers)

    def run(self, traced: bool, *pointers: torch.Tensor) -> None:
        """Launch now, or record the launch in the graph being traced."""
        if traced:
            self.traced(*pointers)
        else:
            self(*pointers)

    def traced(self, *pointers: torch.Tensor) -> None:
        """Launch through wrap_triton: inside a triton_op, so that a tracer sees the kernel."""
        fixed = self.constexprs | ({"DEPENDENT": False} if "DEPENDENT" in self.constexprs else {})
        wrap_triton(self.kernel)[self.grid](*pointers, *self.scalars, **fixed, **self.options)

    def _launch(self, pointers: Sequence[torch.Tensor]) -> Any:
        options = self.options | self.dependent
        return self.kernel[self.grid](*pointers, *self.scalars, **self.constexprs, **options)

    def _launch_and_keep(self, pointers: Sequence[torch.Tensor]) -> None:
        with _compiling:  # forward thread and autograd thread may meet here, both cold
            compiled = self._launch(pointers)
        if isinstance(compiled, triton.compiler.CompiledKernel):
            self.handle = kept_handle(compiled, self.grid)

    def _keeps_guards(self, addresses: list[int], pointers: Sequence[torch.Tensor]) -> bool:
        if functools.reduce(operator.or_, addresses) % ALIGNMENT:
            return False
        return not self.hip or all(
            tensor.untyped_storage().nbytes() <= BUFFER_BYTES for tensor in pointers
        )


def kept_handle(compiled: triton.compiler.CompiledKernel, grid: tuple[int, int, int]) -> Any:
    """What launches `compiled` on its device's current stream from addresses and scalars.

    Addresses, because a launcher asks the driver about every tensor. No hooks while none is set:
    Triton itself would build the metadata of a launch for two empty chains of them, twice the time.
    """
    observed = compiled[grid]
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    active = triton.runtime.driver.active
    current_device, stream_of = active.get_current_device, active.get_current_stream
    device = current_device()
    runtime = triton.knobs.runtime

    def launch(*arguments: int | float) -> None:
        if current_device() != device:
            with torch.cuda.device(device):
                launch(*arguments)
        elif _is_set(runtime.launch_enter_hook) or _is_set(runtime.launch_exit_hook):
            observed(*arguments)
        else:
            run(*grid, stream_of(device), function, metadata, None, None, None, *arguments)

    return launch


def _is_set(hook: Any) -> bool:
    """None, or a chain (Triton 3.5) without calls, is unset."""
    return hook is not None and bool(getattr(hook, "calls", True))


def traceable(body: Callable[..., Result], kernel: Any) -> Callable[..., Result]:
    """The body of a triton_op that launches `kernel` and perhaps the sum of partials:
    body(*arguments, traced=whether a tracer looks on).

    wrap_triton answers that inside a triton_op only. Anywhere else, in eager as well, it wraps, and
    a wrapped launch costs hundreds of microseconds: all other callers leave `traced` False.
    """

    def triton_op_body(*arguments: Any) -> Result:
        # torch keys its cache of compiled graphs by the source of kernels it finds wrapped here
        wrapped = wrap_triton(kernel), wrap_triton(reduce_partials_kernel)
        traced = wrapped[0] is not kernel
        return body(*arguments, traced=traced)

    # torch infers the op's schema from the signature and takes no *arguments
    signature = inspect.signature(body, eval_str=True)
    kept = [p for name, p in signature.parameters.items() if name != "traced"]
    triton_op_body.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return triton_op_body
