# SPDX-License-Identifier: Apache-2.0
"""Let Megatron slice fully_reshardable optimizer state where the parameters really are.

Megatron (0.16 to 0.19) gathers each gradient buffer without the padding at the ends of its
buckets, then cuts parameters out of it at their positions in the padded buffer
(DistributedOptimizer.get_parameter_state_dp_zero, sharded_param_state_fully_reshardable). Behind
the first padded bucket every parameter gets its neighbour's state: nothing fails, neither on
saving nor on loading, and training continues from wrong weights.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from mxflux.training.chained import single_optimizers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_STATES = ("param", "exp_avg", "exp_avg_sq")


@contextlib.contextmanager
def padded_buckets(optimizer: Any) -> Iterator[None]:
    """While open, the distributed optimizers inside ``optimizer`` gather with the padding."""
    with contextlib.ExitStack() as stack:
        for inner in single_optimizers(optimizer):
            if hasattr(inner, "get_parameter_state_dp_zero") and hasattr(inner, "gbuf_ranges"):
                stack.enter_context(_padded(inner))
        yield


@contextlib.contextmanager
def _padded(optimizer: Any) -> Iterator[None]:
    gather = optimizer.get_parameter_state_dp_zero

    def gather_padded(*args: Any, **kwargs: Any) -> dict[Any, Any] | None:
        state: dict[Any, Any] | None = gather(*args, **kwargs)
        if state is not None:
            for index, buffer in enumerate(optimizer.buffers):
                for tensors in state[index].values():
                    tensors.update({key: _spread(tensors[key], buffer) for key in _STATES})
        return state

    optimizer.get_parameter_state_dp_zero = gather_padded
    try:
        yield
    finally:
        del optimizer.get_parameter_state_dp_zero


def _spread(gathered: Tensor, buffer: Any) -> Tensor:
    """[numel_unpadded] -> [numel]: each bucket at its place in the buffer, zeros between."""
    padded = gathered.new_zeros(buffer.numel)
    start = 0
    for bucket in buffer.buckets:
        end = start + bucket.numel_unpadded
        padded[bucket.offset : bucket.offset + bucket.numel_unpadded] = gathered[start:end]
        start = end
    return padded
