# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of training runs from one process that has imported everything they need.

Importing torch and Megatron takes seconds a rank, forking milliseconds. Commands come as JSON
lines on standard input, answers go as JSON lines to standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

NOT_STARTED = 97


def serve() -> None:
    """Answer commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answers.write('"ready"\n')
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(run(**json.loads(line))) + "\n")
        answers.flush()


def run(
    run_dir: str,
    world: int,
    call: str | None = None,
    signal_at_step: int | None = None,
    kill_at_step: int | None = None,
    kill_delay: float = 0.0,
    kill_ranks: list[int] | None = None,
    timeout: float = 200,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Exit codes and output of the ranks; a rank that a signal ended has its negative number.

    call: "module:function" that each rank runs in place of the trainer's main, with the run
    directory. signal_at_step: SIGTERM for rank 0 once that step is logged. kill_at_step: SIGKILL
    for ``kill_ranks`` (default: all) ``kill_delay`` seconds after that step is logged.
    """
    port = str(_free_port())
    deadline = time.monotonic() + timeout
    ranks = [_fork(run_dir, rank, world, port, call, environment or {}) for rank in range(world)]
    codes: dict[int, int] = {}
    while len(codes) < world:
        for rank in set(range(world)) - codes.keys():
            pid, status = os.waitpid(ranks[rank], os.WNOHANG)
            if pid:
                codes[rank] = os.waitstatus_to_exitcode(status)
        if signal_at_step is not None and _logged(run_dir, signal_at_step):
            signal_at_step = None
            os.kill(ranks[0], signal.SIGTERM)
        if kill_at_step is not None and _logged(run_dir, kill_at_step):
            kill_at_step = None
            time.sleep(kill_delay)
            _kill([ranks[n] for n in kill_ranks or range(world) if n not in codes])
        if time.monotonic() > deadline:
            deadline = float("inf")
            _kill([pid for rank, pid in enumerate(ranks) if rank not in codes])
        time.sleep(0.01)
    outputs = [Path(run_dir, f"rank-{rank}.log").read_text("utf-8") for rank in range(world)]
    return {"codes": [codes[rank] for rank in range(world)], "outputs": outputs}


def _fork(
    run_dir: str, rank: int, world: int, port: str, call: str | None, environment: dict[str, str]
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = NOT_STARTED
    try:
        log = os.open(Path(run_dir, f"rank-{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
        os.environ.update(
            environment,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        random.seed(os.getpid())
        code = _main(run_dir, call)
    except BaseException:  # noqa: BLE001  a fork must never return into the server
        traceback.print_exc()
    finally:
        os._exit(code)


def _main(run_dir: str, call: str | None) -> int:
    if call is None:
        main = importlib.import_module("mxflux.training.main")
        return int(main.main(["--run-dir", run_dir]))
    module, _, function = call.partition(":")
    return int(getattr(importlib.import_module(module), function)(Path(run_dir)))


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _logged(run_dir: str, step: int) -> bool:
    path = Path(run_dir, "metrics.jsonl")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return any(f'"train", "step": {step},' in line for line in lines)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _import_everything() -> None:
    from support.megatron_alone import lend_override

    from mxflux.training.cpu_device import enable

    lend_override()
    warnings.simplefilter("ignore")
    sys.modules["transformer_engine"] = None  # type: ignore[assignment]  as the trainer does
    enable(despite_cuda=True)
    for name in (
        "mxflux.training.main",
        "mxflux.training.trainer",
        "mxflux.training.process",
        "sklearn.datasets",
        "torch.testing._internal.distributed.fake_pg",
        "megatron.core.dist_checkpointing.strategies.torch",
        "training_ranks",
    ):
        importlib.import_module(name)
    if importlib.util.find_spec("megatron.training") is not None:
        importlib.import_module("megatron.training.arguments")
    import torch

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # imports much
    from support import origin

    origin.check_imported()


if __name__ == "__main__":
    _import_everything()
    serve()
