# SPDX-License-Identifier: Apache-2.0
"""A rank's device and process group, set up before Megatron is imported and torn down after."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .cpu_device import cpu_device, is_enabled
from .errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Process:
    """One rank of a run."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    fake: bool = False
    """Whether the other ranks are only imagined: collectives then return at once."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes what a run has once."""
        return self.rank == 0


def ranks_from_environment() -> tuple[int, int, int]:
    """(rank, world size, local rank) as torchrun sets them; without torchrun (0, 1, 0).

    Raises SetupError naming a variable that is missing or no number.
    """
    if "RANK" not in os.environ:
        return 0, 1, 0
    values = []
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        text = os.environ.get(name, "")
        if not text.isdecimal():
            raise SetupError(f"{name}={text!r} is no rank number: start the ranks with torchrun")
        values.append(int(text))
    return values[0], values[1], values[2]


@contextlib.contextmanager
def started_process(
    device: str,
    *,
    transformer_impl: str,
    backend: str,
    timeout_minutes: int,
    fake_world: int | None = None,
) -> Iterator[Process]:
    """Choose the device, hide what cannot be imported on it, and join the process group.

    Args:
        device: ``cpu``, or the name of an accelerator that torch calls ``cuda``.
        transformer_impl: on the CPU only ``local`` runs; TransformerEngine is hidden from
            Megatron there, whose import of it fails without its compiled parts.
        backend: nccl or gloo.
        timeout_minutes: after which a collective counts as hung.
        fake_world: pretend to be rank 0 of this many ranks, in one process.

    Raises:
        SetupError: no such device, or TransformerEngine asked for on the CPU.
    """
    rank, world_size, local_rank = ranks_from_environment()
    if fake_world is not None:
        if world_size != 1:
            raise SetupError(f"--fake-world is for one process, torchrun started {world_size}")
        world_size = fake_world
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            _prepare_cpu(transformer_impl, stack)
            found = torch.device("cpu")
        else:
            found = _prepare_accelerator(device, local_rank)
        if fake_world is None:
            _join(backend, found, rank, world_size, timeout_minutes)
        else:
            _join_fake(world_size)
        stack.push(partial(_leave, found))
        yield Process(rank, world_size, local_rank, found, fake=fake_world is not None)


def _leave(device: torch.device, kind: object, *_: object) -> None:
    """End the process group, but not on an accelerator after an exception.

    NCCL would wait there for collectives that the other ranks do not end, and the exception would
    never be seen.
    """
    if kind is None or device.type == "cpu":
        torch.distributed.destroy_process_group()


def _prepare_cpu(transformer_impl: str, stack: contextlib.ExitStack) -> None:
    if transformer_impl != "local":
        raise SetupError(
            f"model.transformer_impl={transformer_impl!r} does not run on device: cpu; "
            "set model.transformer_impl: local"
        )
    if "transformer_engine" not in sys.modules:
        modules: dict[str, Any] = sys.modules
        modules["transformer_engine"] = None  # the import system's "no"
        stack.callback(sys.modules.pop, "transformer_engine", None)
        logger.info("device: cpu hides TransformerEngine from Megatron")
    if not is_enabled():  # a caller that runs several processes from one has done it for all
        stack.enter_context(cpu_device(despite_cuda=True))


def _prepare_accelerator(device: str, local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        raise SetupError(
            f"device: {device}, but torch {torch.__version__} sees no accelerator; "
            "`mxtree doctor` says why, or set device: cpu"
        )
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise SetupError(
            f"local rank {local_rank} has no device of its own: {count} visible. "
            f"Set launch.nproc_per_node: {count}"
        )
    hip = torch.version.hip is not None
    if hip != (device == "mi355x"):
        kind = "ROCm" if hip else "CUDA"
        raise SetupError(f"device: {device}, but torch {torch.__version__} is a {kind} build")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _join(
    backend: str, device: torch.device, rank: int, world_size: int, timeout_minutes: int
) -> None:
    timeout = timedelta(minutes=timeout_minutes)
    if "RANK" not in os.environ:
        distributed: Any = torch.distributed
        store = distributed.HashStore()
        torch.distributed.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=timeout
        )
        return
    bound = device if device.type == "cuda" else None
    torch.distributed.init_process_group(backend, timeout=timeout, device_id=bound)


def _join_fake(world_size: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group(
        backend="fake", store=FakeStore(), rank=0, world_size=world_size
    )
