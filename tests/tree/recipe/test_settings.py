# SPDX-License-Identifier: Apache-2.0
"""Keys that are no argument of Megatron arrive in the settings of the room that acts on them."""

from __future__ import annotations

from typing import Any

import pytest
from small_recipe import TE, recipe

from mxflux.data.settings import settings_of
from mxflux.evaluation.mlperf_facts import facts_of_recipe
from mxflux.recipe.keys import all_keys
from mxflux.training.evaluating import evaluation_budget
from mxflux.training.mx_precision import local_options, te_options

ENERGON = {"data.kind": "energon", "data.path": "/data"}


@pytest.mark.parametrize(
    ("key", "value", "around", "setting"),
    [
        ("data.kind", "mock", {}, "kind"),
        ("data.path", "/elsewhere", ENERGON, "path"),
        ("data.num_workers", 5, ENERGON, "num_workers"),
        ("data.val_num_workers", 3, ENERGON, "val_num_workers"),
        ("data.prefetch_factor", 5, ENERGON, "prefetch_factor"),
        ("data.max_samples_per_sequence", 7, ENERGON, "max_samples_per_sequence"),
        ("data.shuffle_buffer_size", 9, ENERGON, "shuffle_buffer_size"),
        ("data.vae_latent_mode", "resample", ENERGON, "vae_latent_mode"),
        ("data.image_size", 128, {}, "image_size"),
        ("data.text_length", 32, {}, "text_length"),
        ("data.mock_samples", 11, {"data.kind": "mock"}, "mock_samples"),
        ("schedule.micro_batch_size", 2, {}, "micro_batch_size"),
        ("schedule.seed", 77, {}, "seed"),
        ("evaluation.micro_batch_size", 2, {}, "eval_micro_batch_size"),
        ("model.context_dim", 48, {}, "context_dim"),
        ("model.vec_in_dim", 48, {}, "vec_in_dim"),
    ],
)
def test_data(key: str, value: Any, around: dict[str, Any], setting: str) -> None:
    assert value != all_keys()[key].default
    given = recipe({**around, key: value})
    assert getattr(settings_of(given, given.architecture), setting) == value


@pytest.mark.parametrize(
    ("key", "value", "options"),
    [
        ("mx_scale_mode", "rceil", {"scale_mode": "rceil"}),
        ("mx_hadamard", True, {"wgrad_hadamard": 16}),
        ("mx_stochastic_rounding", True, {"stochastic_gradients": True}),
        ("mx_weight_block_2d", True, {"weight_2d": True}),
        ("mx_backward_precision", "bf16", {"backward": "bf16"}),
    ],
)
def test_local_mx_linears(key: str, value: Any, options: dict[str, Any]) -> None:
    fp4 = {"precision.fp4": "e2m1", "precision.fp4_recipe": "mxfp4"}
    plain = local_options(recipe(fp4).precision)
    found = local_options(recipe({**fp4, f"precision.{key}": value}).precision)
    assert {name: v for name, v in found.items() if v != plain[name]} == options


@pytest.mark.parametrize(
    ("key", "value", "options"),
    [
        ("gemm_backend", "triton", {"backend": "triton"}),
        ("mx_scale_mode", "rceil", {"scale_mode": "rceil"}),
        ("mx_hadamard", True, {"use_hadamard": True}),
        ("mx_stochastic_rounding", True, {"stochastic_rounding": True}),
        ("mx_weight_block_2d", True, {"weight_block_2d": True}),
        (
            "mx_backward_precision",
            "mxfp8",
            {"dgrad_precision": "mxfp8", "wgrad_precision": "mxfp8"},
        ),
    ],
)
def test_transformer_engines_mx_recipes(key: str, value: Any, options: dict[str, Any]) -> None:
    plain = te_options(recipe({**TE, "precision.fp6": "e2m3"}).precision)
    changed = recipe({**TE, "precision.fp6": "e2m3", f"precision.{key}": value})
    found = te_options(changed.precision)
    assert {name: v for name, v in found.items() if v != plain[name]} == options


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"evaluation.iters": 3}, {"samples": 24, "iterations": 3}),
        ({"evaluation.samples": 16}, {"samples": 16, "iterations": 2}),
        ({"evaluation.samples": 16, "evaluation.micro_batch_size": 2}, {"micro_batch_size": 2}),
        ({"evaluation.samples": 32, "evaluation.global_batch_size": 16}, {"width": 16}),
        ({"evaluation.samples": 15, "evaluation.remainder": "mask"}, {"remainder": "mask"}),
        ({"evaluation.samples": 16, "data.val_num_workers": 2}, {"num_workers": 2}),
    ],
)
def test_evaluation(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    budget = evaluation_budget(recipe({"evaluation.interval": 10, **changes}))
    assert budget is not None
    assert {name: getattr(budget, name) for name in expected} == expected
    assert evaluation_budget(recipe()) is None


@pytest.mark.parametrize(
    ("key", "value", "logged"),
    [
        ("mlperf.train_samples", 77, "train_samples"),
        ("mlperf.eval_samples", 77, "eval_samples"),
        ("mlperf.submission_org", "x", "submission_org"),
        ("mlperf.submission_platform", "x", "submission_platform"),
        ("mlperf.submission_division", "open", "submission_division"),
        ("mlperf.submission_status", "cloud", "submission_status"),
        ("optimizer.adam_beta2", 0.9, "opt_adamw_beta_2"),
    ],
)
def test_mlperf(key: str, value: Any, logged: str) -> None:
    given = recipe({"mlperf.enable": True, "evaluation.interval": 10, key: value})
    facts = facts_of_recipe(given, data_parallel_size=2, eval_samples=5, config_filename="r.yaml")
    assert facts.values[logged] == value


def test_mlperf_target() -> None:
    given = recipe({"mlperf.target_val_loss": 0.25})
    facts = facts_of_recipe(given, data_parallel_size=2, eval_samples=5, config_filename="r.yaml")
    assert facts.target == pytest.approx(0.25)
