# SPDX-License-Identifier: Apache-2.0
"""A rank's whole training state, taken before a warm-up and put back bit for bit after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .chained import single_optimizers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .build import Built
    from .forward_step import FluxForwardStep

Kept = list[tuple[torch.Tensor, torch.Tensor]]


class TrainingSnapshot:
    """Parameters, buffers, optimizer, schedule and counters; copies lie on the CPU.

    Random generators are not included: ``mxflux.evaluation.rng.preserved_rng`` keeps those.
    """

    def __init__(self, built: Built, forward_step: FluxForwardStep) -> None:
        self.built = built
        self.forward_step = forward_step
        self._tensors = _copies(_model_tensors(built))
        self._optimizers = [_OptimizerState(adam) for adam in _inner_optimizers(built.optimizer)]
        self._schedule = built.scheduler.state_dict()
        self._counter = vars(forward_step.counter).copy()
        self._started = forward_step.started

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back, and leave no gradient behind."""
        for tensor, copy in self._tensors:
            tensor.copy_(copy)
        for state in self._optimizers:
            state.restore()
        self._restore_schedule()
        vars(self.forward_step.counter).update(self._counter)
        self.forward_step.started = self._started
        self._restore_fp8()
        self.built.ddp.zero_grad_buffer()
        self.built.optimizer.zero_grad()

    def _restore_schedule(self) -> None:
        scheduler = self.built.scheduler
        scheduler.num_steps = 0
        scheduler.step(increment=self._schedule["num_steps"])

    def _restore_fp8(self) -> None:
        """Delayed scaling starts with unit scales and no history; TE makes both at first use."""
        for name, tensor in _fp8_tensors(self.built.model):
            tensor.fill_(1.0 if name == "scale" else 0.0)


class _OptimizerState:
    """What one inner optimizer holds: its own parameters, per-parameter state and group values."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._parameters = _copies(
            parameter.data for group in optimizer.param_groups for parameter in group["params"]
        )
        self._groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        self._state = {
            parameter: {key: _copied(value) for key, value in state.items()}
            for parameter, state in optimizer.state.items()
        }

    def restore(self) -> None:
        """Put it back; what the warm-up allocated is dropped, so that Adam starts at step 0."""
        for tensor, copy in self._parameters:
            tensor.copy_(copy)
        for group, values in zip(self.optimizer.param_groups, self._groups, strict=True):
            for key in group.keys() - values.keys() - {"params"}:
                del group[key]
            group.update(values)
        self.optimizer.state.clear()
        for parameter, state in self._state.items():
            self.optimizer.state[parameter] = {
                key: _put_back(parameter, value) for key, value in state.items()
            }


def _inner_optimizers(optimizer: Any) -> Iterator[torch.optim.Optimizer]:
    for inner in single_optimizers(optimizer):
        yield inner.optimizer


def _model_tensors(built: Built) -> Iterator[torch.Tensor]:
    for parameter in built.model.parameters():
        yield parameter.data
    yield from built.model.buffers()


def _copies(tensors: Any) -> Kept:
    return [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors]


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def _put_back(parameter: torch.Tensor, value: Any) -> Any:
    """A state tensor where the optimizer keeps it: a scalar step may stay on the CPU."""
    if isinstance(value, torch.Tensor) and value.dim():
        return value.to(parameter.device)
    return value


def _fp8_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """("scale" or "amax_history", tensor) of TransformerEngine's delayed scaling."""
    for module in model.modules():
        for key, meta in getattr(module, "fp8_meta", {}).items():
            if not key.startswith("scaling_"):
                continue
            for name in ("scale", "amax_history"):
                tensor = getattr(meta, name, None)
                if isinstance(tensor, torch.Tensor):
                    yield name, tensor
