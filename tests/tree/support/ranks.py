# SPDX-License-Identifier: Apache-2.0
"""Run a function of the test suite on several gloo ranks, with Megatron on the CPU and no TE."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any


def run(function: str, world: int, *, timeout: float = 120, **arguments: Any) -> list[Any]:
    """What ``function`` ("module:name") returned on each rank, for JSON-able arguments.

    Raises:
        RuntimeError: a rank failed or all took longer than ``timeout`` seconds; holds their output.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_start(function, rank, world, folder, arguments) for rank in range(world)]
        try:
            outputs = [process.communicate(timeout=timeout)[0] for process in ranks]
        except subprocess.TimeoutExpired:
            for process in ranks:
                process.kill()
            outputs = [process.communicate()[0] for process in ranks]
        if any(process.returncode for process in ranks):
            raise RuntimeError("\n".join(_tails(ranks, outputs, timeout)))
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(world)]


def _start(
    function: str, rank: int, world: int, folder: str, arguments: dict[str, Any]
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= {
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "support.ranks", function, folder, json.dumps(arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _tails(ranks: list[subprocess.Popen[str]], outputs: list[str], timeout: float) -> list[str]:
    return [
        f"rank {rank} ended with {process.returncode} (limit {timeout} s):\n{output[-4000:]}"
        for rank, (process, output) in enumerate(zip(ranks, outputs, strict=True))
    ]


def _main(function: str, folder: str, arguments: str) -> None:
    """One rank: set up, call, leave the pickled result under ``folder``."""
    import torch

    from mxflux.training.cpu_device import cpu_device
    from support import origin
    from support.megatron_alone import lend_override, without_te

    lend_override()
    warnings.simplefilter("ignore")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with without_te(), cpu_device(despite_cuda=True), contextlib.ExitStack() as stack:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
        )
        stack.callback(torch.distributed.destroy_process_group)
        module, _, name = function.partition(":")
        result = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    origin.check_imported()
    Path(folder, str(rank)).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _main(*sys.argv[1:])
