# SPDX-License-Identifier: Apache-2.0
"""Rules of `data`, `schedule`, `optimizer`, `parallel`, `launch` and `evaluation`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rule_settings import ENERGON, EVALUATION, TE, Case, check_refused, name_of

if TYPE_CHECKING:
    from conftest import Faults

REFUSED: list[Case] = [
    # data
    ("data.kind=energon", "data.path=null with data.kind=energon", "mxtree data synth"),
    (("data.kind=energon", 'data.path=""'), "data.path=null with data.kind=energon"),
    ("data.vae_latent_mode=resample", "data.vae_scale=null with vae_latent_mode=resample"),
    ("data.vae_scale=0.3611", "data.vae_scale=0.3611 with vae_latent_mode=presampled"),
    ("data.image_size=100", "data.image_size=100 is no multiple of 16"),
    (
        (*ENERGON, "data.empty_encodings_path=/x"),
        "data.empty_encodings_path is set with model.cfg_dropout_prob=0",
    ),
    # schedule
    (
        "schedule.global_batch_size=12",
        "schedule.global_batch_size=12 is no multiple of micro_batch_size=4 x 2 ranks",
    ),
    ("schedule.te_rng_tracker=true", "schedule.te_rng_tracker=true with model.transformer_impl"),
    # optimizer
    ("optimizer.min_lr=1e-3", "optimizer.min_lr=0.001 is above optimizer.lr=0.0002"),
    ("optimizer.min_lr=1e-5", "optimizer.min_lr=1e-05 has no effect with lr_decay_style=constant"),
    (
        ("optimizer.lr_warmup_iters=10", "optimizer.lr_warmup_init=1e-3"),
        "optimizer.lr_warmup_init=0.001 is above optimizer.lr=0.0002",
    ),
    ("optimizer.lr_warmup_iters=100", "optimizer.lr_warmup_iters=100 is not below schedule.train"),
    ("optimizer.use_precision_aware_optimizer=true", "optimizer.use_precision_aware_optimizer=tr"),
    (
        (
            *TE,
            "optimizer.use_precision_aware_optimizer=true",
            "parallel.use_distributed_optimizer=false",
        ),
        "optimizer.use_precision_aware_optimizer=true with parallel.use_distributed_optimizer=fal",
    ),
    # parallel and launch
    (
        "parallel.tensor_model_parallel_size=2",
        "parallel.tensor_model_parallel_size=2 is not supported: each rank draws its own noise",
    ),
    ("parallel.pipeline_model_parallel_size=2", "parallel.pipeline_model_parallel_size=2 is not"),
    ("parallel.context_parallel_size=2", "parallel.context_parallel_size=2 is not supported"),
    ("parallel.sequence_parallel=true", "parallel.sequence_parallel=true is not supported"),
    (
        "parallel.overlap_param_gather=true",
        "parallel.overlap_param_gather=true with parallel.overlap_grad_reduce=false",
    ),
    (
        "parallel.distributed_backend=nccl",
        "parallel.distributed_backend=nccl with device=cpu",
        "there it is gloo",
    ),
    (
        ("device=h200", "launch.nproc_per_node=16", "schedule.global_batch_size=64"),
        "launch.nproc_per_node=16 with device=h200",
    ),
    ("parallel.gradient_accumulation_fusion=true", "parallel.gradient_accumulation_fusion=true w"),
    (
        'launch.environment={MXFLUX_GEMM_BACKEND: "aiter"}',
        "launch.environment: MXFLUX_GEMM_BACKEND belongs to the launcher (precision.gemm_backend)",
    ),
    (
        (*ENERGON, "data.num_workers=0", "data.val_num_workers=0", "data.prefetch_factor=4"),
        "data.prefetch_factor=4 has no effect without a loader process",
    ),
    (
        'launch.environment={"A; rm x": "1"}',
        "launch.environment: 'A; rm x' is no name of a variable",
    ),
    ("launch.slurm.partition=gpu --wrap", "launch.slurm.partition='gpu --wrap' is not one word"),
    ('launch.slurm.account="a\\nb"', "launch.slurm.account='a\\nb' is not one word"),
    ("launch.slurm.qos='\"high\"'", "launch.slurm.qos='\"high\"' is not one word"),
    ('launch.slurm.gpus_per_node=""', "launch.slurm.gpus_per_node='' is not one word"),
    (
        'launch.slurm.extra=["--exclude=n1", "--a\\nrm x"]',
        "launch.slurm.extra: '--a\\nrm x' is no option of sbatch",
    ),
    ("launch.slurm.extra=[rm]", "launch.slurm.extra: 'rm' is no option of sbatch"),
    # evaluation
    ("evaluation.interval=10", "evaluation.interval=10 without evaluation.iters or evaluation.sa"),
    ((*EVALUATION, "evaluation.iters=3"), "evaluation.iters=3 with evaluation.samples=64"),
    (
        (*EVALUATION, "evaluation.global_batch_size=12"),
        "evaluation.global_batch_size=12 is no multiple of micro_batch_size=4 x 2 ranks",
    ),
    (
        (*EVALUATION, "evaluation.samples=60"),
        "evaluation.samples=60 does not divide into micro-batches of 4 for 2 ranks x 1 workers: 4",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_refused(faults: Faults, case: Case) -> None:
    check_refused(faults, case)
