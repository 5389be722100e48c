# SPDX-License-Identifier: Apache-2.0
"""What is decided before the first step: batches, rates, MX options, what is refused."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.megatron_alone import lend_override, without_te
from training_runs import SHORT

from mxflux.fusions.gates import FusionGates
from mxflux.mx.tally import Census
from mxflux.recipe.errors import RecipeError
from mxflux.recipe.loading import load
from mxflux.training.errors import CheckError, SetupError

if TYPE_CHECKING:
    from pathlib import Path

    from mxflux.recipe.schema import Recipe

lend_override()
with without_te(), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    build, census, compilation, configs, first_step, learning_rate, mx_precision = (
        importlib.import_module(f"mxflux.training.{name}")
        for name in (
            "build", "census", "compilation", "configs", "first_step", "learning_rate",
            "mx_precision",
        )
    )  # fmt: skip

MXFP4 = ("precision.fp4=e2m1", "precision.fp4_recipe=mxfp4", "precision.gemm_backend=emulated")


@pytest.fixture(autouse=True)
def _no_te(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformer_engine", None)


def recipe(folder: Path, *overrides: str, text: str = SHORT) -> Recipe:
    """The tiny recipe with other values."""
    path = folder / "recipe.yaml"
    path.write_text(text, "utf-8")
    return load(path, overrides).recipe


def test_batches_of_a_step(tmp_path: Path) -> None:
    assert configs.num_microbatches(recipe(tmp_path), 2) == 2
    with pytest.raises(SetupError, match=r"global_batch_size=32 is not .*=8 x 3 ranks"):
        configs.num_microbatches(recipe(tmp_path), 3)


def test_every_group_has_the_timeout_of_the_recipe(tmp_path: Path) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        build.initialize_parallel_state(
            recipe(tmp_path, "parallel.distributed_timeout_minutes=7", "launch.nproc_per_node=1")
        )
        group: Any = build.parallel_state.get_data_parallel_group()
        timeout = group._get_backend(torch.device("cpu")).options._timeout
        build.parallel_state.destroy_model_parallel()
    finally:
        torch.distributed.destroy_process_group()
    assert timeout.total_seconds() == 7 * 60


def test_the_optimizer_knows_the_fp8_recipe(tmp_path: Path) -> None:
    te = ("device=h200", "model.transformer_impl=transformer_engine")
    fp8 = ("precision.fp8=hybrid", "precision.fp8_recipe=tensorwise")
    asked = configs.optimizer_config(
        recipe(tmp_path, *te, *fp8, "precision.params_dtype=bfloat16",
               "parallel.distributed_backend=nccl")
    )  # fmt: skip
    assert asked.fp8_recipe == "tensorwise"
    assert configs.optimizer_config(recipe(tmp_path)).fp8_recipe is None


def test_the_schedule_counts_samples(tmp_path: Path) -> None:
    arguments = configs.schedule_of(
        recipe(
            tmp_path,
            "optimizer.lr_decay_iters=50",
            "optimizer.min_lr=1e-4",
            "optimizer.lr_decay_style=linear",
        )
    )
    assert arguments["lr_warmup_steps"] == 2 * 32
    assert arguments["lr_decay_steps"] == 50 * 32
    assert (arguments["max_lr"], arguments["min_lr"]) == (4e-3, 1e-4)


def test_aligned_warm_up_starts_above_zero() -> None:
    """lr = init + (max - init) * (samples + batch) / (warm-up + batch), then the usual rate."""
    group: dict[str, Any] = {"params": [], "lr": 0.0, "default_config": True}
    optimizer = types.SimpleNamespace(param_groups=[group])
    schedule = learning_rate.AlignedWarmupScheduler(
        optimizer, global_batch_size=32, init_lr=0.0, max_lr=1.0, min_lr=0.0,
        lr_warmup_steps=96, lr_decay_steps=3200, lr_decay_style="constant",
        start_wd=0.1, end_wd=0.1, wd_incr_steps=3200, wd_incr_style="constant",
    )  # fmt: skip
    rates = [group["lr"]]
    for _ in range(4):
        schedule.step(increment=32)
        rates.append(group["lr"])
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_options_of_local_mx_linears(tmp_path: Path) -> None:
    asked = recipe(
        tmp_path,
        *MXFP4,
        "precision.mx_scale_mode=even",
        "precision.mx_hadamard=true",
        "precision.mx_weight_block_2d=true",
        "precision.mx_backward_precision=bf16",
    )
    assert mx_precision.local_options(asked.precision) == {
        "scale_mode": "even", "backward": "bf16", "weight_2d": True,
        "stochastic_gradients": False, "wgrad_hadamard": 16,
    }  # fmt: skip
    six = recipe(tmp_path, "precision.fp6=e3m2", "precision.gemm_backend=emulated")
    assert mx_precision.local_options(six.precision) == {
        "scale_mode": "floor", "backward": "mx", "hadamard": 0,
    }  # fmt: skip


def test_another_gemm_backend_in_the_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXFLUX_GEMM_BACKEND", "aiter")
    with pytest.raises(SetupError, match=r"MXFLUX_GEMM_BACKEND=aiter .*gemm_backend='emulated'"):
        mx_precision.use_mx_precision(recipe(tmp_path, *MXFP4))
    monkeypatch.setenv("MXFLUX_GEMM_BACKEND", "emulated")
    mx_precision.use_mx_precision(recipe(tmp_path, *MXFP4))
    mx_precision.set_local_linear_provider(None)


def test_quantized_linears_by_name(tmp_path: Path) -> None:
    sizes = ("model.num_joint_layers=19", "model.num_single_layers=38")
    config = configs.flux_config(recipe(tmp_path, *MXFP4, *sizes))
    names = census.quantized_linears(config)
    assert len(names) == len(set(names)) == config.architecture.num_quantized_linears == 304
    shapes = config.architecture.parameter_shapes()
    assert all(f"{name}.weight" in shapes for name in names)


def test_census_names_what_was_not_as_asked(tmp_path: Path) -> None:
    asked = recipe(tmp_path, *MXFP4)
    config = configs.flux_config(asked)
    names = census.quantized_linears(config)
    formats = census.expected_formats(asked, config)
    assert formats == dict.fromkeys(("fprop", "dgrad", "wgrad"), ("e2m1", "emulated"))
    ran = Census()
    ran.gemms = Counter(
        {(n, direction, *how): 2 for n in names for direction, how in formats.items()}
    )
    census.check_census(ran, names, formats)
    del ran.gemms[names[0], "wgrad", "e2m1", "emulated"]
    ran.gemms[names[0], "wgrad", "bf16", "torch"] = 2
    ran.gemms["proj_out", "fprop", "e2m1", "emulated"] = 2
    with pytest.raises(CheckError) as caught:
        census.check_census(ran, names, formats)
    assert str(caught.value).splitlines()[1:] == [
        f"  {names[0]}: wgrad ran bf16 on torch, not e2m1 on emulated",
        "  proj_out: ran in an MX format and was not meant to",
    ]


@pytest.mark.parametrize(
    ("ran", "asked", "wanted"),
    [
        ({"use_fused_attention": True}, "fused", None),
        ({"use_flash_attention": True}, "auto", None),
        ({"use_flash_attention": True}, "fused", "attention_backend=fused, but .* selected flash"),
        ({}, "fused", "attention never ran"),
    ],
)
def test_selected_attention_backend(
    monkeypatch: pytest.MonkeyPatch, ran: dict[str, bool], asked: str, wanted: str | None
) -> None:
    """TE's own record of its selection; TE itself does not run on the CPU."""
    module = types.SimpleNamespace(_attention_backends=ran)
    monkeypatch.setitem(sys.modules, first_step._TE_ATTENTION, module)
    config = types.SimpleNamespace(
        transformer_impl="transformer_engine", attention_backend=types.SimpleNamespace(name=asked)
    )
    model = types.SimpleNamespace(config=config)
    if wanted is None:
        assert first_step.check_attention(model)["asked"] == asked
        return
    with pytest.raises(CheckError, match=wanted):
        first_step.check_attention(model)


def test_a_graph_counts_for_the_gates_whose_operators_it_holds(tmp_path: Path) -> None:
    traced = compilation.TracedOperators(recipe(tmp_path, "compile.enable=true").compile)
    gates = FusionGates({"fused_ln_modulate": "on", "fused_qk_norm_rope": "on"})
    gates.build("fused_ln_modulate", "single.1")
    gates.build("fused_qk_norm_rope", "single.1")
    with pytest.raises(CheckError, match="compiled nothing"):
        traced.count(gates)
    traced.graphs, traced.operators = 1, {"mxflux.ln_modulate.default": 2}
    traced.count(gates)
    assert [report.traced for report in gates.report()] == [1, 0]
    with pytest.raises(ValueError, match=r"never engaged: fused_qk_norm_rope in single\.1"):
        gates.require_engaged()


@pytest.mark.parametrize(
    "overrides",
    [
        ("compile.strategy=full_dit",),
        ("compile.strategy=whole_model", "parallel.overlap_param_gather=true"),
        ("compile.strategy=stack", "model.recompute_granularity=full",
         "model.recompute_method=uniform", "model.recompute_num_layers=1"),
    ],
    ids=["full_dit", "whole_model", "stack"],
)  # fmt: skip
def test_strategies_that_cannot_run_are_refused(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    """By the recipe's own rules or, where it has none for it, by the trainer."""
    with pytest.raises((RecipeError, SetupError), match=r"compile\.strategy"):
        compilation.check_compile(recipe(tmp_path, "compile.enable=true", *overrides))
