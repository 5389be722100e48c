# SPDX-License-Identifier: Apache-2.0
"""A tiny Flux of the TE spec on a GPU, patched Megatron and TE: MXFP4 and MXFP6 by config keys."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
pytest.importorskip("megatron.core", reason="patched Megatron is not on PYTHONPATH")

if TYPE_CHECKING:
    from collections.abc import Iterator

FP4 = {"fp4": "e2m1", "fp4_recipe": "mxfp4", "fp4_use_native_te_autocast": True}
CASES = {
    "mxfp4": ("e2m1", "triton", FP4),
    "mxfp6": ("e2m3", "emulated", {"fp6": "e2m3"}),
}


@pytest.fixture(scope="module", autouse=True)
def _one_rank() -> Iterator[None]:
    from megatron.core import parallel_state

    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def model(**fields: Any) -> Any:
    import flux_tiny as tiny

    from mxflux.flux.model import FluxModel

    spec = {"transformer_impl": "transformer_engine", "attention_backend": "unfused"}
    built = FluxModel(tiny.config(**spec, bf16=True, params_dtype=torch.bfloat16, **fields))
    tiny.randomize(built)
    return built.cuda()


def output(built: Any) -> torch.Tensor:
    import flux_tiny as tiny

    batch = tiny.cast(tiny.inputs(batch=2, text=8), torch.bfloat16)
    out: torch.Tensor = built(**{name: value.cuda() for name, value in batch.items()})
    return out


@pytest.mark.parametrize("case", CASES)
def test_every_linear_of_flux_runs_in_the_format_asked_for(
    case: str, native_gemms: Counter[str]
) -> None:
    import flux_tiny as tiny

    from mxflux.megatron.mx_recipe import set_recipe_options
    from mxflux.te import census

    fmt, backend, fields = CASES[case]
    plain = output(model()).float()
    native_gemms.clear()
    set_recipe_options(backend=backend)
    built = model(**fields)
    optimizer = torch.optim.SGD(built.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with census(built) as opened:
            out = output(built)
            loss = out.float().square().mean()
            loss.backward()
        n = tiny.ARCHITECTURE.num_quantized_linears
        counts = Counter({key[1:]: 0 for key in opened.gemms})
        for (_, *what), count in opened.gemms.items():
            counts[tuple(what)] += count
        assert counts == {(d, fmt, backend): n for d in ("fprop", "dgrad", "wgrad")}
        if not losses:
            error = (out.float() - plain).norm() / plain.norm()
            assert 1e-3 < float(error) < 0.5
        losses.append(float(loss))
        optimizer.step()
    assert native_gemms["generic_gemm"] == 0
    assert losses[2] < 0.95 * losses[0], losses
