# SPDX-License-Identifier: Apache-2.0
"""Real Megatron on real TE's Python: a block of TE layers, trained through get_fp4_context.

Runs as a process of its own, since the tests of this process import Megatron without TE. TE is on
its stub (`te_stub`), Megatron on mxflux's CPU device, one gloo rank.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = {"num_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 128}
CPU = {"bias_dropout_fusion": False, "masked_softmax_fusion": False, "use_cpu_initialization": True}
CPU |= {"hidden_dropout": 0.0, "attention_dropout": 0.0, "bf16": True}
MXFP4 = {"fp4": "e2m1", "fp4_recipe": "mxfp4", "fp4_use_native_te_autocast": True}
SEQUENCE, BATCH = 16, 2


def run(timeout: float = 120) -> dict[str, Any]:
    """Outcome of every piece; "Type: message" where it raised.

    Raises:
        RuntimeError: the process failed; holds the end of its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, sys.path))
        settings = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": path}
        environment = {k: v for k, v in os.environ.items() if k != "MXFLUX_GEMM_BACKEND"}
        command = [sys.executable, "-m", "support.te_megatron", folder]
        done = subprocess.run(
            command,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
        found: dict[str, Any] = json.loads(Path(folder, "found.json").read_text("utf-8"))
        return found


def block(**settings: Any) -> Any:
    """Three layers in TE's spec, each weight with an fp32 main_grad as DDP gives it one."""
    import torch
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
    from megatron.core.transformer.transformer_block import TransformerBlock
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.manual_seed(3)
    config = TransformerConfig(**{**SHAPE, **CPU, "params_dtype": torch.bfloat16, **settings})
    net = TransformerBlock(config=config, spec=get_gpt_layer_with_transformer_engine_spec())
    for parameter in net.parameters():
        parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        parameter.grad_added_to_main_grad = False
    return net


def micro_batches(net: Any, count: int = 2) -> None:
    """Forward and backward passes of one step."""
    import torch

    net.config.num_microbatches = count
    net.set_is_first_microbatch()
    for seed in range(count):
        torch.manual_seed(seed)
        x = torch.randn(SEQUENCE, BATCH, SHAPE["hidden_size"], dtype=torch.bfloat16)
        y = net(x.requires_grad_(), attention_mask=None)
        y.backward(torch.randn_like(y))


def counted(**settings: Any) -> dict[str, Any]:
    """GEMMs of one step by linear, direction, format and backend; native GEMMs; gradients."""
    from mxflux.te import census
    from support import te_native

    os.environ["MXFLUX_GEMM_BACKEND"] = "emulated"
    try:
        net = block(**settings)
        te_native.CALLS.clear()
        with census(net) as opened:
            micro_batches(net)
    finally:
        del os.environ["MXFLUX_GEMM_BACKEND"]
    state = {n: v.numel() for n, v in net.state_dict().items() if n.endswith("_extra_state")}
    return {
        "expected": list(opened.expected),
        "gemms": [[*key, n] for key, n in opened.gemms.items()],
        "native": te_native.CALLS["generic_gemm"],
        "weights": {
            name: (p.main_grad if p.grad_added_to_main_grad else p.grad).tolist()
            for name, p in net.named_parameters()
            if name.endswith((".weight",)) and p.dim() == 2
        },
        "fused": sorted({p.grad_added_to_main_grad for p in net.parameters() if p.dim() == 2}),
        "extra_state": state,
    }


def without_backend() -> None:
    """A forward with no GEMM backend chosen."""
    micro_batches(block(**MXFP4), count=1)


PIECES: dict[str, Callable[[], Any]] = {
    "fused": lambda: counted(**MXFP4, gradient_accumulation_fusion=True),
    "unfused": lambda: counted(**MXFP4, gradient_accumulation_fusion=False),
    "first and last layer in bf16": lambda: counted(
        **MXFP4,
        gradient_accumulation_fusion=True,
        first_last_layers_bf16=True,
        num_layers_at_start_in_bf16=1,
        num_layers_at_end_in_bf16=1,
    ),
    "without backend": without_backend,
}


def outcome(piece: Callable[[], Any]) -> Any:
    """What the piece returned, or how it failed."""
    try:
        return piece()
    except Exception as error:  # noqa: BLE001 - any failure is a result to compare
        return f"{type(error).__name__}: {error}"


def _main(folder: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import pytest
    import torch

    from mxflux.training.cpu_device import cpu_device
    from support import origin, te_cuda, te_stub

    te_stub.install()
    with cpu_device(despite_cuda=True), pytest.MonkeyPatch.context() as patch:
        te_cuda.gfx950(patch)
        with contextlib.ExitStack() as stack:
            store = f"file://{folder}/store"
            torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
            stack.callback(torch.distributed.destroy_process_group)
            from megatron.core import parallel_state
            from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

            parallel_state.initialize_model_parallel()
            model_parallel_cuda_manual_seed(1)
            found = {name: outcome(piece) for name, piece in PIECES.items()}
    origin.check_imported()
    Path(folder, "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    _main(sys.argv[1])
