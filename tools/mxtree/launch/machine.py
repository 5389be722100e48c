# SPDX-License-Identifier: Apache-2.0
"""What this machine has to offer before ranks start on it: GPUs, packages, a free port."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from mxtree.environment.doctor import gpu, training
from mxtree.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

#: Architecture that each device of a recipe stands for.
ARCHITECTURES = {"h200": "sm_90", "mi355x": "gfx950"}


def gpus(python: Path) -> list[str]:
    """Return the architectures of this machine's GPUs: as the drivers, else as torch names them."""
    return gpu.from_drivers() or training.architectures(python)


def check_gpus(device: str, ranks: int, found: Callable[[], list[str]]) -> None:
    """Raise `FatalError` unless there is a GPU of ``device``'s architecture for each rank.

    ``found`` gives the architectures; it is asked only when the device is a GPU.
    """
    wanted = ARCHITECTURES.get(device)
    if wanted is None:
        return
    architectures = found()
    if not architectures:
        raise FatalError(
            f"the recipe is for {device} ({wanted}), and no GPU was found on this machine",
            hint="mxtree doctor; to see what would run elsewhere: --dry-run; recipes/cpu run here",
        )
    fitting = architectures.count(wanted)
    if fitting < ranks:
        others = ", ".join(sorted(set(architectures)))
        raise FatalError(
            f"{ranks} ranks need {ranks} GPUs of {device} ({wanted}), and there are {fitting} "
            f"of {len(architectures)} GPUs ({others})",
            hint=f"--nproc {fitting}" if fitting else "use a recipe for this machine",
        )


def check_extras(logging: Any, python: Path, versions: Mapping[str, str]) -> None:
    """Raise `FatalError` when the recipe's ``logging`` asks for a tracker that is not installed.

    ``versions`` are those of the environment of ``python``, by distribution.
    """
    asked = {
        "tensorboard": ("logging.tensorboard", logging.tensorboard),
        "wandb": ("logging.wandb_project", logging.wandb_project is not None),
    }
    lacking = [name for name, (_, is_on) in asked.items() if is_on and name not in versions]
    if lacking:
        said = "; ".join(f"{asked[name][0]} needs the package {name}" for name in lacking)
        raise FatalError(
            f"{said}, not installed for {python}",
            hint=f"{python} -m pip install {' '.join(lacking)}    (or unset the key: metrics.jsonl "
            "is always written)",
        )


def check_port(port: int | None) -> None:
    """Raise `FatalError` when the rendezvous cannot listen on ``port`` of this machine."""
    if port is None:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
        except OSError as error:
            raise FatalError(
                f"port {port} (launch.master_port) is in use on this machine: {error.strerror}",
                hint="end what listens there, or leave the choice to torchrun: "
                "launch.master_port=null",
            ) from error
