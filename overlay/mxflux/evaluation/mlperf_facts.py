# SPDX-License-Identifier: Apache-2.0
"""What an MLPerf log of flux1 has to say about a run, and what the rules would refuse. No torch.

Rules: mlperf_logging.compliance_checker training_6.0.0 and training_6.1.0 (common.yaml,
closed_common.yaml, closed_flux1.yaml).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

EVALUATION_SAMPLES = 262_144
"""Samples between evaluations that the rules ask for (rounded up to whole steps)."""
TARGET = 0.586
#: From the coarsest to the finest; the names are those of the rules.
PRECISIONS = ("mxfp4", "mxfp6", "fp8", "bfloat16", "fp32")
_FIXED = {
    "opt_adamw_beta_1": 0.9,
    "opt_adamw_beta_2": 0.95,
    "opt_adamw_epsilon": 1e-8,
    "opt_adamw_weight_decay": 0.1,
    "opt_gradient_clip_norm": 1.0,
}


@dataclass(frozen=True)
class MLPerfFacts:
    """The values of a log. ``values`` has one entry a key, in the order in which it is logged."""

    values: Mapping[str, Any]
    target: float
    global_batch_size: int

    def problems(self, ruleset: str) -> list[str]:
        """What the rules of ``ruleset`` would refuse in the log of this run, before it starts."""
        found = [
            f"{key} is empty"
            for key in ("submission_org", "submission_platform", "config_filename")
            if not self.values[key]
        ]
        found += [
            f"{key} is {self.values[key]}, not {fixed}"
            for key, fixed in _FIXED.items()
            if self.values[key] != fixed
        ]
        interval = math.ceil(EVALUATION_SAMPLES / self.global_batch_size) * self.global_batch_size
        wanted = EVALUATION_SAMPLES if ruleset == "6.0.0" else interval
        if self.values["evaluation_frequency"] != wanted:
            found.append(
                f"evaluation_frequency is {self.values['evaluation_frequency']} samples, not "
                f"{wanted}: evaluation.interval x schedule.global_batch_size"
            )
        if not self.target <= TARGET:
            found.append(f"mlperf.target_val_loss is {self.target}, more than {TARGET}")
        if ruleset == "6.0.0" and "mxfp6" in self.values.values():
            found.append("the rules of 6.0.0 know no mxfp6; those of 6.1.0 do")
        return found


def facts_of_recipe(
    recipe: Any, *, data_parallel_size: int, eval_samples: int, config_filename: str
) -> MLPerfFacts:
    """What the log says of a run of ``recipe`` (mxflux.recipe) on so many data-parallel ranks.

    ``eval_samples``: what every evaluation counts; ``config_filename``: the recipe's file.
    """
    schedule, optimizer, mlperf = recipe.schedule, recipe.optimizer, recipe.mlperf
    linear, attention, communication = precisions(recipe.precision)
    values = {
        "submission_benchmark": "flux1",
        "submission_division": mlperf.submission_division,
        "submission_status": mlperf.submission_status,
        "submission_org": mlperf.submission_org or "",
        "submission_platform": mlperf.submission_platform or "",
        "seed": schedule.seed,
        "global_batch_size": schedule.global_batch_size,
        "micro_batch_size": schedule.micro_batch_size,
        "gradient_accumulation_steps": schedule.global_batch_size
        // (schedule.micro_batch_size * data_parallel_size),
        "train_samples": mlperf.train_samples or 0,
        "eval_samples": mlperf.eval_samples or eval_samples,
        "evaluation_frequency": (recipe.evaluation.interval or 0) * schedule.global_batch_size,
        "opt_name": "adamw",
        "opt_base_learning_rate": optimizer.lr,
        "opt_learning_rate_warmup_steps": optimizer.lr_warmup_iters,
        "opt_adamw_beta_1": optimizer.adam_beta1,
        "opt_adamw_beta_2": optimizer.adam_beta2,
        "opt_adamw_epsilon": optimizer.adam_eps,
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.clip_grad,
        "lowest_numerical_precision_in_linear": linear,
        "lowest_numerical_precision_in_attn": attention,
        "lowest_numerical_precision_in_comm": communication,
        "tensor_parallelism": recipe.parallel.tensor_model_parallel_size,
        "pipeline_parallelism": recipe.parallel.pipeline_model_parallel_size,
        "context_parallelism": recipe.parallel.context_parallel_size,
        "expert_parallelism": 1,
        "config_filename": config_filename,
    }
    return MLPerfFacts(values, mlperf.target_val_loss, schedule.global_batch_size)


def precisions(precision: Any) -> tuple[str, str, str]:
    """Coarsest format of linears, attention and communication that a recipe's section asks for."""
    stored = "bfloat16" if precision.params_dtype == "bfloat16" else "fp32"
    linear = [stored]
    if precision.fp4:
        linear.append("mxfp4")
    if precision.fp6:
        linear.append("mxfp6")
    if precision.fp8:
        linear.append("fp8")
    if precision.fp4 or precision.fp6:
        linear.append(_backward(precision.mx_backward_precision) or stored)
    attends_in_fp8 = precision.fp8 and precision.fp8_dot_product_attention
    reduced = "bfloat16" if precision.grad_reduce_in_bf16 else stored
    return _coarsest(linear), "fp8" if attends_in_fp8 else stored, _coarsest([stored, reduced])


def _backward(name: str | None) -> str | None:
    if name is None:
        return None
    family = name.split("_", maxsplit=1)[0]
    return {"mxfp8": "fp8", "bf16": "bfloat16"}.get(family, family)


def _coarsest(names: list[str]) -> str:
    return min(names, key=PRECISIONS.index)
