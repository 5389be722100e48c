# SPDX-License-Identifier: Apache-2.0
"""Launch geometry away from the sizes the tables were tuned for: other widths, other dtypes."""

from __future__ import annotations

import fusions_support as support  # noqa: F401
import pytest
import torch

from mxflux.fusions import catalog, tables
from mxflux.fusions.launch import Launch
from mxflux.fusions.plans import SHARED_BYTES, fitting_stages

BACKWARDS = {
    "norm_rope_backward": 2,
    "qkv_backward": 5,
    "ln_modulate_backward": 2,
    "gate_residual_backward": 4,
}
"""Op -> tensors whose tiles an iteration of its loop loads."""


def kernel(op: str, arch: str, dtype: torch.dtype) -> Launch:
    config = tables.configuration(arch, op, *catalog.table_rows(op, 512, 32))
    return catalog.Factory(arch, dtype=dtype).calls(op, 512, 32, config)[0].launch


def tile_bytes(launch: Launch, dtype: torch.dtype) -> int:
    fixed = launch.constexprs
    if "CHUNK" in fixed:
        elements = fixed["BLOCK_R"] * fixed["CHUNK"] * fixed["CHUNKS"]
    else:
        elements = fixed["BLOCK_M"] * fixed["BLOCK_D"]
    return elements * torch.empty(0, dtype=dtype).element_size()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1024, 3072, 8192])
@pytest.mark.parametrize("op", BACKWARDS)
def test_a_pipeline_fits_the_shared_memory_of_a_block(
    op: str, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "HIDDEN", width)
    monkeypatch.setattr(catalog, "HEAD_DIM", 256 if width > 3072 else 128)
    launch = kernel(op, "sm_90", dtype)
    kept = (launch.constexprs["STAGES"] - 1) * BACKWARDS[op] * tile_bytes(launch, dtype)
    assert kept <= SHARED_BYTES


def test_the_tabulated_sizes_run_as_tabulated() -> None:
    for op in BACKWARDS:
        config = tables.configuration("sm_90", op, *catalog.table_rows(op, 512, 32))
        launch = kernel(op, "sm_90", torch.bfloat16)
        assert launch.constexprs["STAGES"] == config["STAGES"] > 2
        assert launch.options["num_warps"] == config["num_warps"]


def test_stages_are_as_many_as_fit_and_at_least_one() -> None:
    assert fitting_stages(4, SHARED_BYTES // 3) == 4
    assert fitting_stages(4, SHARED_BYTES // 2) == 3
    assert fitting_stages(4, 2 * SHARED_BYTES) == 1
    assert fitting_stages(1, 16) == 1


@pytest.mark.parametrize(("width", "warps"), [(64, 4), (3072, 4), (4096, 8), (6144, 8), (8192, 8)])
def test_wider_rows_get_more_warps(width: int, warps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four warps would keep 64 sums a thread at 8192, and spill them."""
    monkeypatch.setattr(catalog, "HIDDEN", width)
    for op in ("ln_modulate_forward", "ln_modulate_backward", "gate_residual_backward"):
        assert kernel(op, "sm_90", torch.bfloat16).options["num_warps"] == warps
