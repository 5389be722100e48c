# SPDX-License-Identifier: Apache-2.0
"""A tiny Flux of TE's spec on real Megatron and TE's Python: which GEMMs a precision really runs.

A process of its own: Megatron decides at import whether Transformer Engine exists.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FP4 = {"fp4": "e2m1", "fp4_recipe": "mxfp4", "fp4_use_native_te_autocast": True}
EDGES = {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1}
EDGES |= {"num_layers_at_end_in_bf16": 1}


def run(timeout: float = 180) -> dict[str, Any]:
    """Outcome of every piece; "Type: message" where it raised.

    Raises:
        RuntimeError: the process failed; holds the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "found.json")
        path = os.pathsep.join(filter(None, sys.path))
        settings = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": path}
        environment = {k: v for k, v in os.environ.items() if k != "MXFLUX_GEMM_BACKEND"}
        done = subprocess.run(
            [sys.executable, "-m", "support.te_flux", str(target)],
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
        found: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return found


def counted(options: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """GEMMs of one training step by linear, direction, format and backend, and native GEMMs."""
    import flux_tiny as tiny
    import torch

    from mxflux.flux.model import FluxModel
    from mxflux.megatron.mx_recipe import set_recipe_options
    from mxflux.te import census
    from support import te_native

    set_recipe_options(**options)
    spec = {"transformer_impl": "transformer_engine", "attention_backend": "unfused"}
    model = FluxModel(tiny.config(**spec, bf16=True, params_dtype=torch.bfloat16, **fields))
    tiny.randomize(model)
    te_native.CALLS.clear()
    with census(model) as opened:
        out = model(**tiny.cast(tiny.inputs(batch=2, text=8), torch.bfloat16))
        out.float().square().sum().backward()
    linears = {name: p.grad for name, p in model.named_parameters() if p.dim() == 2}
    return {
        "expected": list(opened.expected),
        "quantized": tiny.ARCHITECTURE.num_quantized_linears,
        "gemms": [[*key, n] for key, n in opened.gemms.items()],
        "native": te_native.CALLS["generic_gemm"],
        "finite": all(bool(grad.isfinite().all()) for grad in linears.values()),
        "extra_state": [
            value.numel() for name, value in model.state_dict().items() if "_extra_state" in name
        ],
    }


def losses_as_weights_change(**fields: Any) -> dict[str, list[float]]:
    """Losses of two training steps and an evaluation, of weights that differ from one to the next.

    "fresh" are those of a new model with the same weights, which has nothing packed yet.
    """
    import flux_tiny as tiny
    import torch
    from megatron.core.enums import ModelType
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    from mxflux.evaluation.budget import EvalBudget
    from mxflux.evaluation.evaluator import Evaluator
    from mxflux.flux.model import FluxModel
    from mxflux.megatron.mx_recipe import set_recipe_options
    from mxflux.training.random_state import StepCounter
    from mxflux.training.step import TrainStep

    set_recipe_options(backend="emulated")
    spec = {"transformer_impl": "transformer_engine", "attention_backend": "unfused"}
    inputs = tiny.cast(tiny.inputs(batch=2, text=8), torch.bfloat16)

    def built(scale: float) -> Any:
        model: Any = FluxModel(
            tiny.config(**spec, bf16=True, params_dtype=torch.bfloat16, **fields)
        )
        tiny.randomize(model)
        return scaled(model, scale)

    def scaled(model: Any, factor: float) -> Any:
        for parameter in model.parameters():
            parameter.data.mul_(factor)
        return model

    def loss(model: Any) -> torch.Tensor:
        return model(**inputs).float().square().mean()

    def forward_step(_: Any, model: Any) -> Any:
        return loss(model), lambda value: (value, {"loss": value.detach()})

    with torch.no_grad():
        fresh = [float(loss(built(scale))) for scale in (1.0, 0.5, 0.25)]
    model = built(1.0)
    model.model_type = ModelType.encoder_or_decoder
    model.zero_grad_buffer = lambda: None
    step: Any = SimpleNamespace(
        built=SimpleNamespace(ddp=model, optimizer=model), num_microbatches=1, micro_batch_size=2,
        forward_step=forward_step,
    )  # fmt: skip
    used = []
    for _ in range(2):
        used.append(TrainStep._forward_backward(step, iter(())))
        scaled(model, 0.5)
    counted: Any = SimpleNamespace(counter=StepCounter(), device=torch.device("cpu"))
    with Evaluator(model, counted, list, EvalBudget(2, 1, 1, 2, 1))._undisturbed():
        used.append(float(loss(model)))
    get_cuda_rng_tracker().reset()  # restored by the evaluation, it counts as initialized
    return {"used": used, "fresh": fresh}


EMULATED = {"backend": "emulated"}
PIECES: dict[str, Callable[[], Any]] = {
    "fp6": lambda: counted(EMULATED, fp6="e2m3"),
    "fp6 e3m2": lambda: counted({**EMULATED, "wgrad_precision": "bf16"}, fp6="e3m2"),
    "fp6, edges in bf16": lambda: counted(EMULATED, fp6="e2m3", **EDGES),
    "fp4": lambda: counted({**EMULATED, "use_hadamard": True}, **FP4),
    "no backend": lambda: counted({}, fp6="e2m3"),
    "unknown option": lambda: counted({**EMULATED, "use_hadamad": True}, fp6="e2m3"),
    "bf16": lambda: counted({}),
    "fp6, weights change": lambda: losses_as_weights_change(fp6="e2m3"),
    "fp4, weights change": lambda: losses_as_weights_change(**FP4),
}


def outcome(piece: Callable[[], Any]) -> Any:
    """What the piece returned, or how it failed."""
    try:
        return piece()
    except Exception as error:  # noqa: BLE001 - any failure is a result to compare
        return f"{type(error).__name__}: {error}"


def _main(target: str) -> None:
    warnings.simplefilter("ignore")
    import pytest
    import torch

    from support import origin, te_cuda, te_stub

    te_stub.install()
    te_cuda.gfx950(pytest.MonkeyPatch())
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "flux"))
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel()
    found = {name: outcome(piece) for name, piece in PIECES.items()}
    torch.distributed.destroy_process_group()
    origin.check_imported()
    Path(target).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    _main(sys.argv[1])
