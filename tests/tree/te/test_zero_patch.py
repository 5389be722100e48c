# SPDX-License-Identifier: Apache-2.0
"""Zero-patch mode: it takes a stock TE or refuses, and can be taken back.

Here, on a patched tree, it must refuse. What it does on a stock one is what all the other tests of
this folder show with MXFLUX_TE_ZERO_PATCH=1 and the stock TE first on PYTHONPATH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from transformer_engine.common import recipe as te_recipe
from transformer_engine.pytorch import quantization
from transformer_engine.pytorch.cpp_extensions import gemm
from transformer_engine.pytorch.module import base, linear

from mxflux.te import tree, zero_patch

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_STOCK = pytest.mark.skipif(not zero_patch.enabled(), reason="for a stock TE in zero-patch mode")
ON_PATCHED = pytest.mark.skipif(zero_patch.enabled(), reason="for a patched TE")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Whatever a test found or enabled is forgotten."""
    before = zero_patch.enabled()
    tree.forget()
    yield
    if not before:
        zero_patch.disable()
    tree.forget()


@ON_PATCHED
@pytest.mark.control("DID NOT RAISE|the overrides do not know")
def test_a_patched_te_is_refused() -> None:
    with pytest.raises(RuntimeError, match="has MXFP4BlockScaling and MXFP6BlockScaling already"):
        zero_patch.enable()
    assert not zero_patch.enabled()


@ON_PATCHED
@pytest.mark.control("MXFP4BlockScaling")
def test_a_series_without_its_recipes_is_half_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in zero_patch.NAMES:
        monkeypatch.delattr(te_recipe, name)
    with pytest.raises(RuntimeError, match=r"half patched .*mended: 'a weight gradient does not"):
        zero_patch.enable()


@ON_PATCHED
@pytest.mark.control("DID NOT RAISE|Regex pattern did not match")
def test_recipes_without_a_patch_behind_them_are_half_patched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patched = gemm.custom_gemm

    def stock(*args: Any, out: Any, accumulate: bool, **options: Any) -> Any:
        return patched(*args, **options)

    monkeypatch.setattr(gemm, "custom_gemm", stock)
    with pytest.raises(RuntimeError, match=r"half patched .*not mended: 'a weight gradient does"):
        zero_patch.enable()


@ON_STOCK
def test_it_is_taken_back_whole_and_put_in_place_again() -> None:
    places = (
        (gemm, "custom_gemm"),
        (gemm, "general_gemm"),
        (linear, "general_gemm"),
        (base.TransformerEngineBaseModule, "grad_output_preprocess"),
        (quantization, "check_recipe_support"),
    )
    overrides = [getattr(*place) for place in places]
    assert all(f.__module__ == "mxflux.te.zero_patch.overrides" for f in overrides)
    zero_patch.disable()
    stock = [getattr(*place) for place in places]
    assert all(f.__module__.startswith("transformer_engine.") for f in stock)
    assert not hasattr(te_recipe, "MXFP4BlockScaling")
    assert set(zero_patch.STOCK_LACKS) <= set(tree.problems())
    zero_patch.enable()
    assert tree.problems() == ()
    assert hasattr(te_recipe, "MXFP4BlockScaling")


@ON_STOCK
def test_a_release_that_moved_what_is_overridden_is_refused_untouched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zero_patch.disable()

    def moved(recipe: Any, device: Any) -> None:
        """Another signature."""

    monkeypatch.setattr(quantization, "check_recipe_support", moved)
    with pytest.raises(RuntimeError, match="check_recipe_support takes"):
        zero_patch.enable()
    assert gemm.custom_gemm.__module__.startswith("transformer_engine.")
    monkeypatch.undo()
    zero_patch.enable()


def test_the_variable_is_0_or_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, wanted in (("0", False), ("1", True)):
        monkeypatch.setenv(zero_patch.VARIABLE, value)
        assert zero_patch.wanted() is wanted
    monkeypatch.delenv(zero_patch.VARIABLE)
    assert not zero_patch.wanted()
    monkeypatch.setenv(zero_patch.VARIABLE, "yes")
    with pytest.raises(ValueError, match="'yes'; valid: 0, 1"):
        zero_patch.wanted()
