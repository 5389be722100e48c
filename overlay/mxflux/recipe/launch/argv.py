# SPDX-License-Identifier: Apache-2.0
"""Command lines: torchrun on one node, srun with one torchrun a node on many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.recipe.schema import Recipe

TRAINER = "mxflux.training.main"
#: Port of the rendezvous on many nodes; on one node torchrun takes a free one.
DEFAULT_PORT = 29500


def one_node(
    python: str, recipe: Recipe, run: Path, logs: Path, *, fake_world: int | None = None
) -> list[str]:
    """Return torchrun for all ranks of a run on this machine."""
    port = recipe.launch.master_port
    where = ["--standalone"]
    if port is not None:
        where = ["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
    ranks = 1 if fake_world else recipe.launch.nproc_per_node
    options = [*where, f"--nproc-per-node={ranks}", "--max-restarts=0"]
    extra = [f"--fake-world={fake_world}"] if fake_world else []
    return [*_torchrun(python), *options, *_rank(logs, run), *extra]


def many_nodes(
    python: str, recipe: Recipe, run: Path, logs: Path, *, head: str, job: str, stop_s: float
) -> list[str]:
    """Return srun for one task a node; each starts a torchrun, and they meet on ``head``.

    ``job`` names the rendezvous together with the attempt, so that a torchrun which is left of an
    earlier attempt cannot take part.
    """
    launch = recipe.launch
    srun = [
        "srun",
        f"--nodes={launch.nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]
    node = [python, "-m", "mxflux.recipe.launch.node", str(logs), f"{stop_s:g}"]
    options = [
        f"--nnodes={launch.nodes}",
        f"--nproc-per-node={launch.nproc_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={head}:{launch.master_port or DEFAULT_PORT}",
        f"--rdzv-id={job}-{logs.name}",
        "--max-restarts=0",
    ]
    return [*srun, *node, *_torchrun(python), *options, *_rank(logs, run)]


def _torchrun(python: str) -> list[str]:
    return [python, "-m", "torch.distributed.run"]


def _rank(logs: Path, run: Path) -> list[str]:
    return ["-m", "mxflux.recipe.launch.rank", str(logs), TRAINER, f"--run-dir={run}"]
