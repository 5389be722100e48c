# SPDX-License-Identifier: Apache-2.0
"""What the deferral of the grad-buffer zero says, refuses and leaves alone, on real DDP."""

from __future__ import annotations

import logging
import sys
from typing import Any
from unittest import mock

import torch

from support.grad_buffer_cases import equivalence, wrap
from support.grad_buffer_model import KernelLinear, parameter


class Switching(torch.nn.Module):
    """Two parameters, of which a kernel writes those that are named."""

    def __init__(self) -> None:
        super().__init__()
        self.first = parameter(torch.float32)
        self.second = parameter(torch.float32)

    def forward(self, x: torch.Tensor, by_kernel: str = "") -> torch.Tensor:
        """x: (rows, WIDTH)."""
        for name in ("first", "second"):
            weight = getattr(self, name)
            x = KernelLinear.apply(x, weight, "flag") if name in by_kernel else x @ weight.t()
        return x


def train(writers: list[list[str]], **settings: Any) -> tuple[str, list[str], torch.Tensor]:
    """One step per entry, one microbatch per string in it (the names that a kernel writes).

    Returns the error ("" if none), what was logged, and the last gradients.
    """
    torch.manual_seed(1)
    net = Switching()
    handler = Messages()
    logger = logging.getLogger("mxflux.megatron.grad_buffer")
    with mock.patch.multiple(logger, level=logging.INFO, handlers=[handler], propagate=False):
        error = _train(net, writers, settings)
    grads = [getattr(param, "main_grad", torch.empty(0)).clone() for param in net.parameters()]
    return error, handler.messages, torch.cat([grad.flatten() for grad in grads])


class Messages(logging.Handler):
    """Keeps "LEVEL message" of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.messages.append(f"{record.levelname} {record.getMessage()}")


def _train(net: Switching, writers: list[list[str]], settings: dict[str, Any]) -> str:
    try:
        ddp = wrap(net, **{"defer": True, **settings})
        for microbatches in writers:
            ddp.zero_grad_buffer()
            for by_kernel in microbatches:
                ddp(torch.ones(2, 13, requires_grad=True), by_kernel).pow(2).mean().backward()
            ddp.finish_grad_sync()
    except Exception as error:  # noqa: BLE001  the outcome under test
        return f"{type(error).__name__}: {error}"
    return ""


def events() -> dict[str, Any]:
    """Error and log per situation."""
    logging.disable(logging.NOTSET)
    hook, kernel, mixed = [""], ["first second"], ["second"]
    late = [hook, hook, hook, ["", "second"], ["", "second"]]
    runs = {
        "hook only": train([hook] * 4),
        "hook and kernel": train([mixed] * 4),
        "kernel only": train([kernel] * 2),
        "nothing seen yet": train([[], [], hook, hook]),
        "kernel after hook": train([hook, hook, mixed]),
        "kernel in a later microbatch": train(late),
    }
    zero_fill = train(late, defer=False)[2]
    found: dict[str, Any] = {name: run[:2] for name, run in runs.items()}
    found["equal"] = torch.equal(runs["kernel in a later microbatch"][2], zero_fill)
    found |= _refusals()
    overlay = [name for name in sys.modules if name.startswith("mxflux")]
    with mock.patch.dict(sys.modules, dict.fromkeys(overlay)):
        found["off, without the overlay"] = train([hook] * 2, defer=False)[:2]
    return found


def _refusals() -> dict[str, Any]:
    def with_config(**changes: Any) -> str:
        from megatron.core.transformer import transformer_config

        real = transformer_config.TransformerConfig

        def config(**settings: Any) -> Any:
            built = real(**settings)
            for name, value in changes.items():
                setattr(built, name, value)
            return built

        with mock.patch.object(transformer_config, "TransformerConfig", config):
            return train([[""]])[0]

    layer_wise = {"overlap_param_gather": True, "overlap_grad_reduce": True}
    with mock.patch.object(Switching, "__init__", _managed_layer_wise):
        managed = train([[""]])[0]
    return {
        "cuda graphs": with_config(cuda_graph_impl="local"),
        "embedding wgrad": with_config(defer_embedding_wgrad_compute=True),
        "layer-wise gather": train([[""]], **layer_wise)[0],
        "layer-wise optimizer": managed,
    }


def _managed_layer_wise(self: Any) -> None:
    torch.nn.Module.__init__(self)
    self.first, self.second = parameter(torch.float32), parameter(torch.float32)
    self.second.is_managed_by_layer_wise_optimizer = True


def everything() -> dict[str, Any]:
    """The equivalence and the events, in one start of the ranks."""
    from megatron.core import parallel_state

    found = equivalence()
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel()
    return {**found, "events": events()}
