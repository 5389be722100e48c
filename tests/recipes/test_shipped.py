# SPDX-License-Identifier: Apache-2.0
"""Every recipe that ships: it loads, its name says what it is, and it says what it should."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mxflux.recipe import Loaded, load
from mxflux.recipe.megatron_arguments import evaluation_iterations
from mxflux.recipe.memory import rank_memory

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(
    str(path.relative_to(FOLDER).with_suffix(""))
    for path in FOLDER.rglob("*.yaml")
    if path.parent.name != "base"
)
CAPACITY = {"mi355x": 288 * 10**9, "h200": 141 * 10**9}


@cache
def loaded(name: str) -> Loaded:
    """The recipe of a name, with no environment at all."""
    return load(FOLDER / f"{name}.yaml", environ={})


@pytest.mark.parametrize("name", NAMES)
def test_the_name_says_what_it_is(name: str) -> None:
    recipe = loaded(name).recipe
    device, _, stem = name.partition("/")
    assert recipe.device == device
    assert recipe.name == stem
    assert stem.startswith(recipe.model.preset)
    precision = recipe.precision
    assert ("mxfp4" in stem or "mlperf" in stem) >= (precision.fp4 is not None)
    assert ("mxfp6" in stem) == (precision.fp6 is not None)
    if "mxfp4" in stem:
        assert precision.fp4_recipe == "mxfp4"
    if "bf16" in stem:
        assert precision.params_dtype == "bfloat16"
        assert (precision.fp4, precision.fp6, precision.fp8) == (None, None, None)
    assert recipe.mlperf.enable == ("mlperf" in stem)
    if stem.endswith("_te"):
        assert recipe.model.transformer_impl == "transformer_engine"
    if stem.endswith("_local"):
        assert recipe.model.transformer_impl == "local"
    assert recipe.description


def test_the_recipes_of_the_product_are_there() -> None:
    large = {
        f"{device}/flux_12b_schnell_{kind}"
        for device in ("mi355x", "h200")
        for kind in ("mxfp4_te", "mxfp6", "bf16", "mxfp4_local", "mlperf")
    }
    small = {
        f"mi355x/flux_535m_{k}" for k in ("mxfp4_te", "mxfp6", "bf16", "mxfp4_local", "mlperf")
    }
    small |= {f"h200/flux_535m_{kind}" for kind in ("mxfp4", "mxfp4_te", "mxfp6", "bf16", "mlperf")}
    tiny = {"cpu/flux_tiny", "cpu/flux_tiny_mxfp4", "cpu/flux_tiny_mlperf"}
    assert large | small | tiny <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_resolved_round_trips(name: str, tmp_path: Path) -> None:
    first = loaded(name)
    path = tmp_path / "resolved.yaml"
    path.write_bytes(first.dump_resolved())
    second = load(path, environ={})
    assert second.recipe == first.recipe
    assert second.dump_resolved() == first.dump_resolved()


@pytest.mark.parametrize("name", NAMES)
def test_it_fits_into_its_device(name: str) -> None:
    recipe = loaded(name).recipe
    if recipe.device in CAPACITY:
        assert rank_memory(recipe, recipe.world_size).total < 0.9 * CAPACITY[recipe.device]


@pytest.mark.parametrize("name", NAMES)
def test_it_names_no_machine(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert not (loaded(name).recipe.data.path or "").startswith("/")


def test_every_base_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.yaml"))
    for path in (FOLDER / "base").glob("*.yaml"):
        assert any(f"base: {prefix}{path.name}" in text for prefix in ("", "../base/")), path


def test_te_mxfp4_is_the_run_that_was_measured() -> None:
    """flux_12b_ddp_energon_schnell_resample_te_spec_mxfp4 of the reference, key by key."""
    recipe = loaded("mi355x/flux_12b_schnell_mxfp4_te").recipe
    expected: dict[str, dict[str, Any]] = {
        "model": {
            "preset": "flux_12b",
            "timestep_sampling_strategy": "direct_uniform",
            "activation_func": "openai_gelu",
            "cfg_dropout_prob": 0.1,
            "rotary_interleaved": True,
            "apply_rope_fusion": True,
            "position_embedding_type": "rope",
            "transformer_impl": "transformer_engine",
            "attention_backend": "fused",
        },
        "precision": {
            "fp4_recipe": "mxfp4",
            "fp4_use_native_te_autocast": True,
            "params_dtype": "bfloat16",
            "grad_reduce_in_bf16": True,
        },
        "data": {
            "kind": "energon",
            "num_workers": 8,
            "prefetch_factor": 8,
            "max_samples_per_sequence": None,
            "vae_scale": 0.3611,
            "vae_shift": 0.1159,
            "vae_latent_mode": "resample",
        },
        "schedule": {
            "train_iters": 1000,
            "micro_batch_size": 64,
            "global_batch_size": 512,
            "manual_gc": True,
            "manual_gc_interval": 1000,
            "seed": 2025,
            "te_rng_tracker": True,
            "per_step_rng_reseed": False,
            "warmup_train_steps": 0,
            "check_for_nan_in_loss_and_grad": True,
        },
        "optimizer": {
            "lr": 2e-4,
            "min_lr": 2e-4,
            "weight_decay": 0.1,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "adam_eps": 1e-8,
            "clip_grad": 1.0,
            "lr_warmup_iters": 1600,
            "lr_decay_iters": 4000,
            "lr_decay_style": "constant",
            "nemo_aligned_lr_warmup": False,
            "use_precision_aware_optimizer": False,
        },
        "parallel": {
            "use_distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "ddp_bucket_size": 256_000_000,
            "gradient_accumulation_fusion": False,
            "distributed_timeout_minutes": 60,
        },
        "compile": {"enable": False},
        "evaluation": {"interval": None},
    }
    found = recipe.model_dump()
    for section, keys in expected.items():
        assert {key: found[section][key] for key in keys} == keys, section


def test_mlperf_evaluates_all_of_its_split_every_262144_samples() -> None:
    for device in ("mi355x", "h200"):
        recipe = loaded(f"{device}/flux_12b_schnell_mlperf").recipe
        assert evaluation_iterations(recipe) == 58
        assert recipe.evaluation.interval == 512
        assert recipe.evaluation.interval * recipe.schedule.global_batch_size == 262_144
        assert recipe.evaluation.timestep_source == "dataset"
        assert (recipe.mlperf.target_val_loss, recipe.mlperf.train_samples) == (0.586, 1_099_776)


def test_mxfp6_has_every_fusion_key_set() -> None:
    model = loaded("mi355x/flux_12b_schnell_mxfp6").recipe.model
    gates = {name for name in type(model).model_fields if name.startswith("fused_")}
    assert len(gates) == 6
    assert {name for name in gates if getattr(model, name) == "off"} == set()
    # The prologue holds the norm and the rotation: on for both would leave one of them idle.
    assert {name for name in gates if getattr(model, name) == "auto"} == {"fused_qk_norm_rope"}


def test_h200_twins_differ_in_backend_and_sizes_only() -> None:
    for kind in ("mxfp4_te", "mxfp6", "mxfp4_local", "mlperf"):
        pair = [loaded(f"{d}/flux_12b_schnell_{kind}").recipe for d in ("mi355x", "h200")]
        assert pair[0].model == pair[1].model
        backends = [recipe.precision.gemm_backend for recipe in pair]
        assert backends == ["aiter", "emulated"]
        same = {recipe.precision.model_copy(update={"gemm_backend": None}) for recipe in pair}
        assert len(same) == 1
