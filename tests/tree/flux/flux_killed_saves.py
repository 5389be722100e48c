# SPDX-License-Identifier: Apache-2.0
"""Run as a script: finish a second save again and again, killed one file operation later each.

Python's audit hook sees every open, rename, mkdir and remove; the n-th one is answered with
SIGKILL. What Megatron writes before (into the scratch folder, seconds each time) is written once
and copied. Prints, for each n, how the save ended and what the tracker names afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

warnings.simplefilter("ignore")

from mxflux.training.cpu_device import enable  # noqa: E402

enable(despite_cuda=True)
# As support.megatron_alone does: TE without its C++ part would fail Megatron's import.
sys.modules["transformer_engine"] = None  # type: ignore[assignment]

from megatron.core.dist_checkpointing.mapping import (  # noqa: E402  once, before the forks
    ShardedTensor,
)

from mxflux.checkpoint.distributed import (  # noqa: E402
    Save,
    begin_save,
    finish_save,
    save_checkpoint,
)
from mxflux.checkpoint.tracker import checkpoint_folder, read_tracker  # noqa: E402
from mxflux.checkpoint.verify import verify  # noqa: E402
from mxflux.flux.architecture import FLUX_535M  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")


def in_child(action: Callable[[], object]) -> int:
    """Exit status, or minus the signal, of a forked rank of a group of one."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    action()
    sys.exit(0)  # not os._exit: Megatron's writer processes end with their parent's exit handlers


def whole_save(root: Path, iteration: int) -> None:
    """A save from the beginning to the end."""
    save_checkpoint(root, iteration, state(iteration), FLUX_535M)


def written_save(root: Path) -> None:
    """What Megatron leaves in the scratch folder of iteration 2."""
    begin_save(root, 2, state(2), FLUX_535M).write(state(2))


def killed_save(root: Path, fatal: int) -> None:
    """The rest of a save, killed at one file operation."""
    sys.addaudithook(killer(str(root), fatal))
    finish_save(Save(root, 2, FLUX_535M))


def state(iteration: int) -> dict[str, Any]:
    """One small tensor."""
    tensor = torch.full((1000,), float(iteration))
    return {"w": ShardedTensor.from_rank_offsets("w", tensor)}


def killer(root: str, fatal: int) -> Any:
    """An audit hook that kills this process at the ``fatal``-th file operation below ``root``."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in EVENTS and str(arguments[0]).startswith(root):
            seen += 1
            if seen == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def outcome(root: Path, fatal: int) -> dict[str, Any]:
    """Kill the end of a save of iteration 2 at one operation and look at what is there."""
    ended = in_child(lambda: killed_save(root, fatal))
    latest = read_tracker(root)
    verify(checkpoint_folder(root, latest))
    entries = sorted(p.name for p in root.iterdir() if not p.name.startswith("."))
    if checkpoint_folder(root, 2).exists():
        verify(checkpoint_folder(root, 2))
    return {"ended": ended, "latest": latest, "entries": entries}


def main(base: str) -> None:
    """Try every operation until the save survives; then redo one that was never named."""
    template = Path(base) / "template"
    assert in_child(lambda: whole_save(template, 1)) == 0
    assert in_child(lambda: written_save(template)) == 0
    outcomes: list[dict[str, Any]] = []
    while not outcomes or outcomes[-1]["ended"] != 0:
        root = Path(base) / str(len(outcomes) + 1)
        shutil.copytree(template, root)
        outcomes.append(outcome(root, len(outcomes) + 1))
    unnamed = next(n for n, o in enumerate(outcomes, 1) if "iter_0000002" in o["entries"])
    root = Path(base) / str(unnamed)
    redone = in_child(lambda: whole_save(root, 2))
    verify(checkpoint_folder(root, 2))
    print(json.dumps({"outcomes": outcomes, "redone": redone, "latest": read_tracker(root)}))


if __name__ == "__main__":
    main(sys.argv[1])
