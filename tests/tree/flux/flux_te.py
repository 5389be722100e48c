# SPDX-License-Identifier: Apache-2.0
"""Run as a script: the TE spec of a tiny Flux on the stub of TE's C++, beside the local spec.

A process of its own: Megatron decides at import whether TransformerEngine exists.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

warnings.simplefilter("ignore")

from support import te_cuda, te_native, te_stub  # noqa: E402

te_stub.install()
te_cuda.gfx950(pytest.MonkeyPatch())

import flux_tiny as tiny  # noqa: E402
from megatron.core import parallel_state  # noqa: E402

from mxflux.flux.model import FluxModel  # noqa: E402

ATTENTION = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")


def step(model: FluxModel) -> dict[str, Any]:
    """Output and gradients of a model on the tiny inputs."""
    tiny.randomize(model)
    out = model(**tiny.cast(tiny.inputs(), torch.float32))
    out.square().sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"output": out.detach(), "grads": grads, "keys": sorted(model.state_dict())}


def main(target: str) -> None:
    """Write what both specs gave, and which classes the TE spec was built from."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    fields = {"transformer_impl": "transformer_engine", "attention_backend": "unfused"}
    model = FluxModel(tiny.config(**fields))
    te_native.CALLS.clear()
    result = {
        "environment": {name: os.environ.get(name) for name in ATTENTION},
        "classes": {name: type(module).__name__ for name, module in model.named_modules()},
        "normalization": model.config.normalization,
        "te": step(model),
        "calls": dict(te_native.CALLS),
        "local": step(FluxModel(tiny.config())),
    }
    Path(target).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
