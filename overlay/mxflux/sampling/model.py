# SPDX-License-Identifier: Apache-2.0
"""A FluxModel with the weights of any checkpoint, in one process."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING

import torch

from mxflux.training.cpu_device import cpu_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.checkpoint.sources import Checkpoint
    from mxflux.flux.model import FluxModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@contextlib.contextmanager
def one_process(device: str) -> Iterator[torch.device]:
    """Megatron on one rank of its own; enter it before anything imports Megatron.

    Raises RuntimeError when ``device`` is cuda and there is none.
    """
    with contextlib.ExitStack() as stack:
        # The local spec does without it, and without compiled parts its import fails in Megatron's.
        sys.modules.setdefault("transformer_engine", None)  # type: ignore[arg-type]
        if device == "cpu":
            stack.enter_context(cpu_device(despite_cuda=True))
        elif not torch.cuda.is_available():
            raise RuntimeError(
                f"--device {device}: torch {torch.__version__} sees no accelerator; use cpu"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Megatron says about packages it could use
            from megatron.core import parallel_state

        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        stack.callback(torch.distributed.destroy_process_group)
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        stack.callback(parallel_state.destroy_model_parallel)
        yield torch.device(device)


def load_model(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> FluxModel:
    """The model, in eval mode, its weights cast to ``dtype``; unquantized whatever it trained in.

    Raises CheckpointError naming tensors when the checkpoint is not of its architecture.
    """
    from mxflux.checkpoint.native_view import NativeView

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mxflux.flux.config import FluxConfig
        from mxflux.flux.model import FluxModel

        config = FluxConfig.from_architecture(
            checkpoint.architecture,
            transformer_impl="local",
            params_dtype=dtype,
            bf16=dtype == torch.bfloat16,
            perform_initialization=False,
        )
        model = FluxModel(config)
    view = NativeView(checkpoint)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(view.load(name))
    model.to(device).eval()
    return model
