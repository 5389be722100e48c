# SPDX-License-Identifier: Apache-2.0
"""Rules of `parallel` and `launch`: data parallelism only, on ranks that exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxflux.recipe.schema import Recipe

SPLITS = {
    "tensor_model_parallel_size": "each rank draws its own noise",
    "pipeline_model_parallel_size": "Flux has no pipeline stages",
    "context_parallel_size": "text and image tokens share the sequence axis",
}
GPUS_PER_NODE = 8
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"""[^\s'"\\]+""")
_OPTION = re.compile(r"--[^\r\n]+")


def _splits(r: Recipe) -> Iterator[Finding]:
    for key, reason in SPLITS.items():
        if getattr(r.parallel, key) != 1:
            message = f"parallel.{key}={getattr(r.parallel, key)} is not supported: {reason}"
            yield Finding(f"parallel.{key}", message, "it must be 1")
    if r.parallel.sequence_parallel:
        message = "parallel.sequence_parallel=true is not supported"
        yield Finding("parallel.sequence_parallel", message, "it needs tensor parallelism")


def _overlap(r: Recipe) -> Iterator[Finding]:
    p = r.parallel
    if not p.overlap_param_gather:
        return
    for key in ("use_distributed_optimizer", "overlap_grad_reduce"):
        if not getattr(p, key):
            message = f"parallel.overlap_param_gather=true with parallel.{key}=false"
            yield Finding("parallel.overlap_param_gather", message, f"it needs {key}: true")


def _device(r: Recipe) -> Iterator[Finding]:
    wanted = "gloo" if r.device == "cpu" else "nccl"
    if r.parallel.distributed_backend not in {None, wanted}:
        message = f"parallel.distributed_backend={r.parallel.distributed_backend}"
        yield Finding(
            "parallel.distributed_backend",
            f"{message} with device={r.device}",
            f"there it is {wanted}; null chooses it",
        )
    if r.device != "cpu" and r.launch.nproc_per_node > GPUS_PER_NODE:
        message = f"launch.nproc_per_node={r.launch.nproc_per_node} with device={r.device}"
        yield Finding("launch.nproc_per_node", message, f"a node has {GPUS_PER_NODE} GPUs")


def _fused_accumulation(r: Recipe) -> Iterator[Finding]:
    if r.parallel.gradient_accumulation_fusion and r.device == "cpu":
        message = "parallel.gradient_accumulation_fusion=true with device=cpu"
        yield Finding("parallel.gradient_accumulation_fusion", message, "it is a GPU kernel")


def _environment(r: Recipe) -> Iterator[Finding]:
    from mxflux.recipe.launch.environment import plan

    for problem in plan(r, {}).problems:
        yield Finding("launch.environment", problem)


def _script(r: Recipe) -> Iterator[Finding]:
    """What `mxtree run --slurm` writes into a script of the shell as it stands."""
    for name in r.launch.environment:
        if not _VARIABLE.fullmatch(name):
            message = f"launch.environment: {name!r} is no name of a variable"
            yield Finding("launch.environment", message, "letters, digits and _, no digit first")
    for key in ("partition", "account", "qos", "gpus_per_node"):
        value = getattr(r.launch.slurm, key)
        if value is not None and not _WORD.fullmatch(value):
            message = f"launch.slurm.{key}={value!r} is not one word"
            yield Finding(f"launch.slurm.{key}", message, "no blanks, quotes or backslashes")
    for option in r.launch.slurm.extra:
        if not _OPTION.fullmatch(option):
            message = f"launch.slurm.extra: {option!r} is no option of sbatch"
            yield Finding("launch.slurm.extra", message, "one line that starts with --")


RULES = (_splits, _overlap, _device, _fused_accumulation, _environment, _script)
