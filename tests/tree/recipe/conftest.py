# SPDX-License-Identifier: Apache-2.0
"""Recipes of which one key is changed, on real Megatron without Transformer Engine."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from support.megatron_alone import lend_override, without_te

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parent))

lend_override()
with without_te(), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state

    import mxflux.flux.model
    import mxflux.training.build  # noqa: F401  imports all of Megatron that the tests here use


@pytest.fixture(autouse=True)
def _no_te(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron's late imports find no Transformer Engine either."""
    monkeypatch.setitem(sys.modules, "transformer_engine", None)


@pytest.fixture(scope="module")
def _one_rank() -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
