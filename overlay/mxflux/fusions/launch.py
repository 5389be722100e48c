# SPDX-License-Identifier: Apache-2.0
"""One frozen kernel launch: plain the first time, a kept handle later, traceable on request.

Triton's own launch path re-derives the specialization of every argument on every call (about 14
us); a kept handle costs about 2. What a handle was specialized on and this call might change is
checked: the alignment of every pointer, and on HIP the 2 GiB bound on each storage. Everything else
(shapes, strides, dtypes, device, configuration) is part of the key of the plan that owns the
launch.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch.library import wrap_triton

from mxflux.fusions.kernels.reduce import reduce_partials_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT = 16
"""Bytes; Triton emits 16-byte loads for pointers with this alignment."""

BUFFER_BYTES = 2**31 - 1
"""Largest storage for which Triton uses AMD's buffer instructions, as its launcher decides it."""

INTERPRETER = not isinstance(reduce_partials_kernel, triton.runtime.JITFunction)
"""Whether kernels run in Triton's CPU interpreter: TRITON_INTERPRET=1 when they were defined."""

_compiling = threading.Lock()


class Launch:
    """`kernel[grid]` with its scalars and constexprs fixed; calling it takes the pointer arguments.

    grid: programs on axis 0, the only axis used (65,535 is the limit of the others); 0 launches
    nothing.
    """

    __slots__ = ("constexprs", "grid", "handle", "hip", "kernel", "options", "scalars", "tail")

    def __init__(
        self,
        kernel: Any,
        grid: int,
        scalars: Sequence[int | float],
        constexprs: dict[str, Any],
        num_warps: int,
    ) -> None:
        self.kernel = kernel
        self.grid = (grid, 1, 1)
        self.scalars = tuple(scalars)
        # a kept handle takes constexprs by position, in the kernel's order
        self.constexprs = {n: constexprs[n] for n in kernel.arg_names if n in constexprs}
        self.options = {"num_warps": num_warps}
        self.tail = (*self.scalars, *self.constexprs.values())
        self.handle: Any = None
        self.hip = torch.version.hip is not None

    def __call__(self, *pointers: torch.Tensor) -> None:
        """Launch on the current stream of the pointers' device."""
        if self.grid[0] == 0:
            return
        device = pointers[0].device
        if device.type != "cuda" or device.index == torch.cuda.current_device():
            self._launch_here(pointers)
        else:
            with torch.cuda.device(device):
                self._launch_here(pointers)

    def run(self, traced: bool, *pointers: torch.Tensor) -> None:
        """Launch now, or record the launch in the graph being traced."""
        if traced:
            self.traced(*pointers)
        else:
            self(*pointers)

    def traced(self, *pointers: torch.Tensor) -> None:
        """Launch through wrap_triton: inside a triton_op, so that a tracer sees the kernel."""
        wrap_triton(self.kernel)[self.grid](
            *pointers, *self.scalars, **self.constexprs, **self.options
        )

    def _launch_here(self, pointers: Sequence[torch.Tensor]) -> None:
        if not self._keeps_guards(pointers):
            self._launch(pointers)
        elif self.handle is not None:
            self.handle(*pointers, *self.tail)
        else:
            self._launch_and_keep(pointers)

    def _launch(self, pointers: Sequence[torch.Tensor]) -> Any:
        return self.kernel[self.grid](*pointers, *self.scalars, **self.constexprs, **self.options)

    def _launch_and_keep(self, pointers: Sequence[torch.Tensor]) -> None:
        with _compiling:  # forward thread and autograd thread may meet here, both cold
            compiled = self._launch(pointers)
        if isinstance(compiled, triton.compiler.CompiledKernel):
            self.handle = compiled[self.grid]

    def _keeps_guards(self, pointers: Sequence[torch.Tensor]) -> bool:
        bits = 0
        for tensor in pointers:
            bits |= tensor.data_ptr()
        if bits % ALIGNMENT:
            return False
        return not self.hip or all(
            tensor.untyped_storage().nbytes() <= BUFFER_BYTES for tensor in pointers
        )


def is_traced() -> bool:
    """Whether a triton_op's body runs under a tracer: its launches must then go through
    `Launch.traced`.
    """
    return wrap_triton(reduce_partials_kernel) is not reduce_partials_kernel
