# SPDX-License-Identifier: Apache-2.0
"""Host side of the fixed-order sum of partials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxflux.fusions import tables
from mxflux.fusions.kernels.reduce import reduce_partials_kernel
from mxflux.fusions.launch import Launch

if TYPE_CHECKING:
    import torch


def reduction(
    config: dict[str, int], outputs: int, parts: int, columns: int, *, fp64: bool
) -> Launch:
    """Launch(partial [outputs, parts, columns], out0, out1, out2); unused outputs repeat another."""
    blocks = -(-columns // config["BLOCK_C"])
    return Launch(
        reduce_partials_kernel,
        outputs * blocks,
        (parts, columns, blocks),
        {"BLOCK_P": config["BLOCK_P"], "BLOCK_C": config["BLOCK_C"], "FP64": fp64},
        config["num_warps"],
    )


def reduce_configuration(x: torch.Tensor, parts: int, columns: int) -> dict[str, int]:
    """The tabulated configuration for x's device; its width is the number of columns."""
    return tables.configuration(tables.architecture(x.device), "reduce_partials", columns, parts)
