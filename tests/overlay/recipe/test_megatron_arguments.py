# SPDX-License-Identifier: Apache-2.0
"""Recipe -> Megatron's arguments, without Megatron (tests/tree/recipe has the real one)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mxflux.recipe.megatron_arguments import megatron_arguments

if TYPE_CHECKING:
    from conftest import Load

TE_MXFP4 = (
    "device=h200",
    "model.transformer_impl=transformer_engine",
    "precision.fp4=e2m1",
    "precision.fp4_recipe=mxfp4",
    "precision.gemm_backend=emulated",
    "precision.fp4_use_native_te_autocast=true",
)


@pytest.mark.parametrize(
    ("overrides", "arguments"),
    [
        ((), {"bf16": True, "transformer_impl": "local", "micro_batch_size": 4, "eval_iters": 0}),
        (("precision.params_dtype=float32",), {"bf16": False}),
        ((), {"num_layers": 2, "hidden_size": 128, "ffn_hidden_size": 512}),
        (("data.image_size=64", "data.text_length=8"), {"seq_length": 24}),
        (
            ("model.hidden_size=256", "model.axes_dim=[16, 24, 24]"),
            {"hidden_size": 256, "ffn_hidden_size": 1024},
        ),
        ((), {"distributed_backend": "gloo"}),
        (("device=h200",), {"distributed_backend": "nccl"}),
        (
            ("checkpoint.optimizer_format=fully_reshardable",),
            {"dist_ckpt_optim_fully_reshardable": True},
        ),
        (
            ("evaluation.interval=5", "evaluation.samples=24"),
            {"eval_interval": 5, "eval_iters": 3},
        ),
        (
            ("evaluation.interval=5", "evaluation.samples=25", "evaluation.remainder=pad"),
            {"eval_iters": 4},
        ),
        (("evaluation.interval=5", "evaluation.iters=7"), {"eval_iters": 7}),
        (("checkpoint.async_save=true",), {"use_persistent_ckpt_worker": True}),
        (("model.attention_backend=local",), {"attention_backend": "local", "spec": ["local"]}),
        (TE_MXFP4, {"fp4": "e2m1", "fp4_recipe": "mxfp4", "fp4_use_native_te_autocast": True}),
    ],
)
def test_arguments(load_text: Load, overrides: tuple[str, ...], arguments: dict[str, Any]) -> None:
    found = megatron_arguments(load_text(overrides=overrides).recipe)
    assert {name: found.get(name) for name in arguments} == arguments


def test_fp4_of_the_local_spec_is_not_megatrons(load_text: Load) -> None:
    overrides = ["precision.fp4=e2m1", "precision.fp4_recipe=mxfp4"]
    recipe = load_text(overrides=[*overrides, "precision.gemm_backend=emulated"]).recipe
    assert not {"fp4", "fp4_recipe", "fp8_recipe"} & megatron_arguments(recipe).keys()
