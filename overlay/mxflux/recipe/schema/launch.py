# SPDX-License-Identifier: Apache-2.0
"""Section `launch`: how many processes, where, and for how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import NotNegative, Positive, Section, Texts


class Slurm(Section):
    """Lines of the sbatch script that depend on the site."""

    partition: str | None = None
    """Partition (queue) to submit to; null leaves it to the cluster's default."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service."""
    time_limit_minutes: Positive | None = None
    """Wall-clock limit of the job in minutes; null leaves it to the partition."""
    cpus_per_task: Positive | None = None
    """CPU cores for the one task of each node; null asks for the whole node (--exclusive)."""
    gpus_per_node: str | None = None
    """Value of --gpus-per-node, as `8` in quotes or `mi355x:8`; null leaves the line out."""
    extra: Texts = ()
    """Further #SBATCH options, each as it stands behind the word: `--constraint=mi355x`."""


class Launch(Section):
    """How the processes of a run start."""

    nproc_per_node: Positive = 8
    """Processes on a node: one for each GPU, or CPU ranks."""
    nodes: Positive = 1
    """Nodes. More than one needs Slurm or one torchrun on each of them."""
    master_port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of the rendezvous on the first node; null: a free one on one node, 29500 on many."""
    max_restarts: NotNegative = 0
    """How often the launcher starts all ranks again after one died; each goes on from the newest
    verified checkpoint. Not after a failed check, nor after an error before the first step."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the ranks (NCCL_*, ...). Those that the launcher derives
    from the recipe (NVTE_*, AITER_*, HIP_*, ...) are refused here."""
    slurm: Slurm = Slurm()
    """What `mxtree run --slurm` writes into the script."""
