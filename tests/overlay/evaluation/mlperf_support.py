# SPDX-License-Identifier: Apache-2.0
"""A run of MLPerf's flux1 as its log tells it, without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mxflux.evaluation.mlperf_facts import MLPerfFacts, facts_of_recipe
from mxflux.evaluation.mlperf_log import MLPerfLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BLOCK = 262_144


def recipe(**changes: Any) -> Any:
    """The values of a recipe that a log tells; ``changes`` are ``section__key=value``."""
    sections = {
        "schedule": {"seed": 7, "global_batch_size": 512, "micro_batch_size": 32},
        "optimizer": {
            "lr": 2e-4, "lr_warmup_iters": 1600, "adam_beta1": 0.9, "adam_beta2": 0.95,
            "adam_eps": 1e-8, "weight_decay": 0.1, "clip_grad": 1.0,
        },
        "mlperf": {
            "submission_org": "an org", "submission_platform": "a node",
            "submission_division": "closed", "submission_status": "onprem",
            "train_samples": 1_099_776, "eval_samples": None, "target_val_loss": 0.586,
        },
        "precision": {
            "params_dtype": "bfloat16", "fp4": None, "fp6": None, "fp8": None,
            "mx_backward_precision": None, "fp8_dot_product_attention": False,
            "grad_reduce_in_bf16": False,
        },
        "parallel": {
            "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
            "context_parallel_size": 1,
        },
        "evaluation": {"interval": 512},
    }  # fmt: skip
    for change, value in changes.items():
        section, key = change.split("__")
        sections[section][key] = value
    return SimpleNamespace(**{name: SimpleNamespace(**keys) for name, keys in sections.items()})


def facts(ranks: int = 8, **changes: Any) -> MLPerfFacts:
    """Facts of that recipe on ``ranks``."""
    return facts_of_recipe(
        recipe(**changes), data_parallel_size=ranks, eval_samples=29_696,
        config_filename="recipe.yaml",
    )  # fmt: skip


def write_run(path: Path, losses: Sequence[float] = (0.71, 0.62, 0.58), **changes: Any) -> None:
    """Log a run whose evaluations gave ``losses``."""
    with MLPerfLog(path, target=0.586, guard=False) as log:
        log.describe(facts(**changes))
        log.run_start()
        for number, loss in enumerate(losses, start=1):
            log.throughput(BLOCK * number)
            log.evaluation_start(BLOCK * number)
            if log.evaluation_stop(BLOCK * number, loss):
                break
