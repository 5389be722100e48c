# SPDX-License-Identifier: Apache-2.0
"""Run Megatron-LM on the CPU with gloo: ``enable()`` stands in for the CUDA device it expects.

Megatron has no CPU mode: it allocates on ``torch.cuda.current_device()``, synchronises streams,
forks CUDA generators and compares tensor type names with ``torch.cuda.FloatTensor``. What
``enable`` changes, each for one of these reasons:

* ``torch.cuda.current_device`` returns the CPU device: DDP and the optimizers allocate there.
* ``torch.cuda.synchronize``, ``current_stream``, ``default_stream``, ``Stream``, ``stream`` and
  ``Event`` do nothing: the CPU runs in program order, so there is nothing to wait for.
* ``torch.cuda.get_rng_state``, ``set_rng_state`` and ``manual_seed`` act on the CPU generator,
  which the model-parallel RNG tracker then forks. Runs are reproducible, but not equal to a GPU's.
* ``device="cuda..."`` arguments and ``Tensor.cuda`` mean the CPU, and ``Tensor.type()`` answers
  with the CUDA type name (a ``TorchFunctionMode``: in this thread only, a few microseconds a call).

Not changed: ``torch.cuda.is_available()`` stays False, so whatever asks takes its CPU path.
Enable it before importing Megatron, which keeps references to some of these functions.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CPU = torch.device("cpu")


class _IdleStream:
    """A CUDA stream or event on which nothing is ever outstanding."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    wait_stream = wait_event = record_event = synchronize = record = wait = _nothing

    def query(self) -> bool:
        """True: all work is done."""
        return True


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


def _get_rng_state(*_args: Any, **_kwargs: Any) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(new_state: torch.Tensor, *_args: Any, **_kwargs: Any) -> None:
    torch.set_rng_state(new_state)


def _manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def _to_self(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
    return tensor


def _replacements() -> list[tuple[Any, str, Any]]:
    """(owner, attribute, stand-in) for everything that ``enable`` replaces."""
    rng = {
        "get_rng_state": _get_rng_state,
        "set_rng_state": _set_rng_state,
        "manual_seed": _manual_seed,
    }
    cuda = {
        "current_device": lambda: CPU,
        "synchronize": _nothing,
        "current_stream": _IdleStream,
        "default_stream": _IdleStream,
        "Stream": _IdleStream,
        "Event": _IdleStream,
        "stream": contextlib.nullcontext,
        **rng,
    }
    replaced = [(torch.cuda, name, value) for name, value in cuda.items()]
    replaced += [(torch.cuda.random, name, value) for name, value in rng.items()]
    return [*replaced, (torch.Tensor, "cuda", _to_self)]


class _CudaMeansCpu(TorchFunctionMode):
    """Sends ``device="cuda"`` arguments to the CPU and reports CUDA type names."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = CPU
        if func is torch.Tensor.to and len(args) > 1 and str(args[1]).startswith("cuda"):
            args = (args[0], CPU, *args[2:])
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            # clip_grads and distrib_optimizer ask for 'torch.cuda.FloatTensor' and the like.
            return result.replace("torch.", "torch.cuda.", 1)
        return result


class CpuDevice:
    """What one ``enable`` call replaced; ``disable`` puts it back."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        for owner, name, stand_in in _replacements():
            if name in vars(owner):
                self._stack.callback(setattr, owner, name, vars(owner)[name])
            else:  # inherited, as Tensor.cuda is
                self._stack.callback(delattr, owner, name)
            setattr(owner, name, stand_in)
        self._stack.enter_context(_CudaMeansCpu())

    def disable(self) -> None:
        """Restore everything (call it in the thread that enabled; once is enough)."""
        global _enabled  # noqa: PLW0603  the stand-ins are process-wide, so is their owner
        self._stack.close()
        if _enabled is self:
            _enabled = None


_enabled: CpuDevice | None = None


def enable(*, despite_cuda: bool = False) -> CpuDevice:
    """Make this process run Megatron-LM on the CPU, until ``disable`` on the returned object.

    Args:
        despite_cuda: also where a CUDA (or ROCm) device is present, which then stays unused.

    Raises:
        RuntimeError: a device is present, Megatron is imported already, or it is already enabled.
    """
    global _enabled  # noqa: PLW0603
    if _enabled is not None:
        raise RuntimeError("the CPU device is already enabled: call disable() on it first.")
    if torch.cuda.is_available() and not despite_cuda:
        raise RuntimeError(
            f"{torch.cuda.device_count()} GPU(s) present: training on the CPU would leave them "
            "unused. Unset `device: cpu`, hide them with CUDA_VISIBLE_DEVICES= (or "
            "HIP_VISIBLE_DEVICES=), or pass despite_cuda=True."
        )
    imported = sorted(
        name for name in sys.modules if name.split(".", 2)[:2] == ["megatron", "core"]
    )
    if imported:
        raise RuntimeError(
            f"{imported[0]} is imported already and keeps references to torch.cuda functions: "
            "enable the CPU device before importing Megatron."
        )
    _enabled = CpuDevice()
    return _enabled


def is_enabled() -> bool:
    """Whether this process runs Megatron-LM on the CPU already."""
    return _enabled is not None


@contextlib.contextmanager
def cpu_device(*, despite_cuda: bool = False) -> Iterator[CpuDevice]:
    """``enable`` for the length of a with block (see there)."""
    device = enable(despite_cuda=despite_cuda)
    try:
        yield device
    finally:
        device.disable()
