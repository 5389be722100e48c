# SPDX-License-Identifier: Apache-2.0
"""Host side of the fixed-order sum of partials."""

from __future__ import annotations

from mxflux.fusions import tables
from mxflux.fusions.kernels.reduce import reduce_partials_kernel
from mxflux.fusions.launch import Launch


def reduction(
    arch: str, outputs: int, parts: int, columns: int, *, fp64: bool,
    config: dict[str, int] | None = None,
) -> Launch:  # fmt: skip
    """Launch(partial [outputs, parts, columns], out0, out1, out2); unused outputs repeat another.

    The table's width is the number of columns, its rows the number of parts.
    """
    config = config or tables.configuration(arch, "reduce_partials", columns, parts)
    blocks = -(-columns // config["BLOCK_C"])
    return Launch(
        reduce_partials_kernel,
        outputs * blocks,
        (parts, columns, blocks),
        {
            "OUTPUTS": outputs,
            "BLOCK_P": config["BLOCK_P"],
            "BLOCK_C": config["BLOCK_C"],
            "FP64": fp64,
            "DEPENDENT": tables.dependent_launches(arch),
        },
        config["num_warps"],
        dependent=tables.dependent_launches(arch),
    )
