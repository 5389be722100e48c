# SPDX-License-Identifier: Apache-2.0
"""Patch 0005: MXFP4BlockScaling and MXFP6BlockScaling are recipes of TE, implemented by mxflux."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from typing import Any

import pytest
import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe as te_recipe

NAMES = ("MXFP4BlockScaling", "MXFP6BlockScaling")
OVERRIDE = pytest.mark.upstream("transformer-engine>=2.15", reason="no backward_override before")
MISSING = "has no attribute 'MXFP[46]BlockScaling'"
LINEAR = {"device": "cpu", "params_dtype": torch.bfloat16}


def make(name: str, **options: Any) -> Any:
    """The recipe `name` of the tree under test, on the emulated backend unless told otherwise."""
    return getattr(te_recipe, name)(**{"backend": "emulated", **options})


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_value(name: str) -> None:
    recipe = make(name, use_hadamard=True)
    assert recipe == make(name, use_hadamard=True) != make(name, use_hadamard=False)
    assert recipe != make(name, use_hadamard=True, backend="triton")
    for twin in (pickle.loads(pickle.dumps(recipe)), copy.deepcopy(recipe)):
        assert twin == recipe
        assert str(twin) == str(recipe)
    assert recipe.custom()
    assert not recipe.nvfp4()
    assert type(recipe).__module__ == "transformer_engine.common.recipe"


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_the_options_are_these(name: str) -> None:
    ours = {
        "margin", "fp8_format", "use_hadamard", "stochastic_rounding", "dgrad_precision",
        "wgrad_precision", "scale_mode", "weight_block_2d", "backend",
        "fp4_format" if "4" in name else "fp6_format",
    }  # fmt: skip
    of_any_custom_recipe = {field.name for field in dataclasses.fields(te_recipe.CustomRecipe)}
    found = {field.name for field in dataclasses.fields(make(name))}
    assert found == ours | of_any_custom_recipe - {"qfactory"}


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_the_text_names_every_option(name: str) -> None:
    """TE keys its state by this text: two recipes must not share it."""
    recipe = make(name)
    for field in dataclasses.fields(recipe):
        assert f"{field.name}=" in str(recipe)
    before = str(recipe)
    recipe.use_hadamard = True
    assert str(recipe) != before


@pytest.mark.control(MISSING)
def test_rocm_names_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTE_MXFP4_USE_HADAMARD", "1")
    monkeypatch.setenv("MXFLUX_GEMM_BACKEND", "triton")
    recipe = te_recipe.MXFP4BlockScaling()
    assert (recipe.margin, recipe.fp8_dpa, recipe.fp8_mha) == (0, False, False)
    assert getattr(recipe, "backward_override", None) is None
    assert (recipe.fp4_format, recipe.fp8_format) == (te_recipe.Format.E2M1, te_recipe.Format.E4M3)
    assert (recipe.use_hadamard, recipe.backend) == (True, "triton")
    monkeypatch.undo()
    assert not te_recipe.MXFP4BlockScaling().use_hadamard


@pytest.mark.control(MISSING)
@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("MXFP4BlockScaling", {"margin": 1}, "margin=1"),
        ("MXFP4BlockScaling", {"fp8_dpa": True}, "fp8_dpa=True"),
        ("MXFP4BlockScaling", {"fp8_mha": True}, "fp8_mha=True"),
        ("MXFP4BlockScaling", {"fp8_format": te_recipe.Format.HYBRID}, "fp8_format=HYBRID"),
        ("MXFP4BlockScaling", {"fp4_format": te_recipe.Format.E4M3}, "fp4_format='E4M3'"),
        ("MXFP4BlockScaling", {"dgrad_precision": "fp8"}, "dgrad_precision='fp8'.*mxfp8"),
        pytest.param(
            "MXFP4BlockScaling",
            {"wgrad_precision": "bf16", "backward_override": "dequantized"},
            "wgrad_precision='bf16' has no effect",
            marks=OVERRIDE,
        ),
        pytest.param(
            "MXFP6BlockScaling",
            {"stochastic_rounding": True, "backward_override": "high_precision"},
            "stochastic_rounding=True has no effect",
            marks=OVERRIDE,
        ),
        pytest.param(
            "MXFP4BlockScaling",
            {"quantization_alignment": 16},
            "quantization_alignment=16 splits groups of 32",
            marks=pytest.mark.upstream("transformer-engine>=2.20", reason="no such option before"),
        ),
        ("MXFP6BlockScaling", {"wgrad_precision": "BF16"}, "wgrad_precision='BF16'.*'bf16'"),
        ("MXFP6BlockScaling", {"fp6_format": "E2M1"}, "fp6_format='E2M1'.*E2M3"),
        ("MXFP6BlockScaling", {"scale_mode": "round"}, "'round'.*floor"),
        ("MXFP4BlockScaling", {"backend": "cublas"}, "'cublas'.*emulated"),
        ("MXFP4BlockScaling", {"weight_block_2d": True, "use_hadamard": True}, "block_2d"),
    ],
)
def test_an_option_without_a_meaning_is_refused(
    name: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        make(name, **options)


@pytest.mark.upstream("transformer-engine<2.15", reason="backward_override works from there on")
@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_a_backward_override_that_te_does_not_know_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="backward_override"):
        make(name, backward_override="dequantized")
    monkeypatch.setenv("NVTE_BACKWARD_OVERRIDE", "dequantized")
    with pytest.raises(ValueError, match="NVTE_BACKWARD_OVERRIDE=dequantized has no effect"):
        make(name)


@pytest.mark.control(MISSING)
def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="use_hadamad"):
        make("MXFP4BlockScaling", use_hadamad=True)
    recipe = make("MXFP4BlockScaling")
    recipe.use_hadamad = True
    context = te.autocast(recipe=recipe)
    with pytest.raises(ValueError, match=r"no option 'use_hadamad'.*use_hadamard"):
        context.__enter__()


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_without_the_overlay_the_error_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = getattr(te_recipe, name)
    monkeypatch.setitem(sys.modules, "mxflux", None)
    with pytest.raises(ModuleNotFoundError, match="pip install mxflux"):
        cls()


@pytest.mark.control(MISSING)
def test_a_broken_overlay_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = te_recipe.MXFP4BlockScaling
    monkeypatch.delitem(sys.modules, "mxflux.te", raising=False)
    monkeypatch.setitem(sys.modules, "mxflux.te.options", None)
    with pytest.raises(ModuleNotFoundError, match=r"mxflux\.te\.options"):
        cls()


@pytest.mark.control(MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_no_backend_no_autocast(name: str) -> None:
    context = te.autocast(recipe=make(name, backend=None))
    with pytest.raises(RuntimeError, match="MXFLUX_GEMM_BACKEND"):
        context.__enter__()


@pytest.mark.control(MISSING)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"backend": "aiter"}, "'aiter'.*not installed"),
        ({"backend": "hipblaslt"}, "'hipblaslt'.*ROCm"),
    ],
)
def test_a_backend_that_cannot_run_stops_at_autocast_entry(
    options: dict[str, str], reason: str
) -> None:
    context = te.autocast(recipe=make("MXFP4BlockScaling", **options))
    with pytest.raises(RuntimeError, match=reason):
        context.__enter__()


@pytest.mark.control(MISSING)
def test_a_format_that_the_backend_lacks_stops_at_autocast_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mxflux.mx.backends.triton_dot.missing", lambda _device: None)
    context = te.autocast(recipe=make("MXFP6BlockScaling", backend="triton"))
    with pytest.raises(RuntimeError, match=r"'triton'.*no e2m3 for fprop"):
        context.__enter__()


@pytest.mark.control(MISSING)
def test_an_option_set_after_construction_takes_effect() -> None:
    """Primus sets use_hadamard on the finished recipe."""
    recipe = make("MXFP4BlockScaling")
    recipe.use_hadamard = True
    linear = te.Linear(64, 48, **LINEAR)
    with te.autocast(recipe=recipe):
        linear(torch.ones(32, 64, dtype=torch.bfloat16))
    assert "hadamard=16" in linear.quantizers["scaling_fwd"][0].row
    plain = dataclasses.replace(recipe, use_hadamard=False)
    with te.autocast(recipe=plain):
        linear(torch.ones(32, 64, dtype=torch.bfloat16))
    assert "hadamard=0" in linear.quantizers["scaling_fwd"][0].row


@pytest.mark.control(MISSING)
def test_an_option_set_when_quantizers_exist_is_refused() -> None:
    """TE keeps the quantizers of a recipe that equals itself, so the change would go nowhere."""
    recipe = make("MXFP4BlockScaling")
    with te.autocast(recipe=recipe):
        te.Linear(64, 48, **LINEAR)(torch.ones(32, 64, dtype=torch.bfloat16))
    recipe.use_hadamard = True
    context = te.autocast(recipe=recipe)
    with pytest.raises(RuntimeError, match=r"use_hadamard: False -> True.*dataclasses\.replace"):
        context.__enter__()
    recipe.use_hadamard = False
    with te.autocast(recipe=recipe):
        pass


@pytest.mark.control(MISSING)
def test_a_bad_value_set_after_construction_stops_at_autocast_entry() -> None:
    recipe = make("MXFP4BlockScaling")
    recipe.use_hadamard = "0"
    context = te.autocast(recipe=recipe)
    with pytest.raises(ValueError, match="use_hadamard='0'"):
        context.__enter__()
