# SPDX-License-Identifier: Apache-2.0
"""Whether a recipe can run here, and that it stays as it was when quantizers were made from it."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace

import pytest
from recipe_doubles import Four, Recipe, Six

from mxflux.te import check_support, support
from mxflux.te.support import plan_in_use


def test_the_emulated_backend_runs_anywhere() -> None:
    assert check_support(Four()) == (True, "")
    assert check_support(Six(fp6_format="E3M2", wgrad_precision="bf16")) == (True, "")


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (Four(backend=None), "Four: no GEMM backend is chosen: .*MXFLUX_GEMM_BACKEND"),
        (Four(backend="aiter"), "Four: GEMM backend 'aiter': .*not installed"),
        (Four(backend="hipblaslt"), "Four: GEMM backend 'hipblaslt': .*ROCm"),
        (Six(backend="triton"), "Six: GEMM backend 'triton': "),
    ],
)
def test_what_is_missing_is_named(recipe: Recipe, reason: str) -> None:
    supported, why = check_support(recipe)
    assert not supported
    assert why
    with pytest.raises(RuntimeError, match=reason):
        plan_in_use(recipe)


def test_a_format_that_the_backend_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in ("triton_dot", "aiter_gemm"):
        monkeypatch.setattr(f"mxflux.mx.backends.{backend}.missing", lambda _device: None)
    lacking = Four(backend="aiter", wgrad_precision="mxfp8")
    assert check_support(lacking)[1].endswith("it has no e4m3 for wgrad; it has e2m1, e2m3")
    assert check_support(Six(backend="triton"))[1].startswith(
        "Six: GEMM backend 'triton': it has no"
    )
    assert check_support(Four(backend="aiter", wgrad_precision="bf16")) == (True, "")


def test_a_recipe_may_change_until_a_quantizer_is_made() -> None:
    recipe = Four()
    recipe.use_hadamard = True
    assert check_support(recipe) == (True, "")
    assert "hadamard=16" in plan_in_use(recipe).fprop.a
    recipe.use_hadamard = False
    supported, why = check_support(recipe)
    assert not supported
    assert "use_hadamard: True -> False" in why
    with pytest.raises(RuntimeError, match=r"dataclasses\.replace"):
        plan_in_use(recipe)
    recipe.use_hadamard = True
    assert check_support(recipe) == (True, "")


def test_copies_are_recipes_of_their_own() -> None:
    recipe = Four()
    plan_in_use(recipe)
    for twin in (copy.deepcopy(recipe), replace(recipe)):
        twin.scale_mode = "floor"
        assert check_support(twin) == (True, "")


def test_a_recipe_that_is_gone_is_forgotten() -> None:
    """A new recipe may get the id of an old one."""
    recipe = Four()
    plan_in_use(recipe)
    key = id(recipe)
    assert key in support._in_use
    del recipe
    gc.collect()
    assert key not in support._in_use
