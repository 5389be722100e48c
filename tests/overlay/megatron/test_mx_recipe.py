# SPDX-License-Identifier: Apache-2.0
"""Options of the MX recipes that Megatron's contexts make, as far as they need no TE."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mxflux.megatron import mx_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = SimpleNamespace(fp8_dot_product_attention=False, fp8_multi_head_attention=False)


@dataclass
class Ours:
    """Fields as in the patched TE."""

    backend: str | None = None
    use_hadamard: bool = False


@dataclass
class Rocm:
    """Fields as in ROCm's TE: no backend, its GEMMs are its own."""

    use_hadamard: bool = False


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for transformer_engine.common.recipe; no options before and after."""
    te = ModuleType("transformer_engine")
    te.__file__ = "/somewhere/transformer_engine/__init__.py"
    vars(te)["__version__"] = "2.18.0"
    module = ModuleType("transformer_engine.common.recipe")
    for name in ("transformer_engine", "transformer_engine.common"):
        monkeypatch.setitem(sys.modules, name, te)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(mx_recipe, "_foreign_seen", set())
    mx_recipe.set_recipe_options()
    yield module
    mx_recipe.set_recipe_options()


def made(**of_config: Any) -> Any:
    return mx_recipe.mx_recipe("MXFP4BlockScaling", "fp4_recipe='mxfp4'", CONFIG, **of_config)


def test_options_reach_every_recipe_until_they_are_replaced(recipes: Any) -> None:
    recipes.MXFP4BlockScaling = Ours
    assert made() == Ours()
    mx_recipe.set_recipe_options(backend="triton")
    assert made() == made() == Ours(backend="triton")
    assert made(use_hadamard=True) == Ours("triton", use_hadamard=True)
    assert mx_recipe.recipe_options() == {"backend": "triton"}
    mx_recipe.set_recipe_options(use_hadamard=True)
    assert made() == Ours(use_hadamard=True)


def test_an_option_that_the_recipe_lacks_is_refused(recipes: Any) -> None:
    recipes.MXFP4BlockScaling = Rocm
    mx_recipe.set_recipe_options(backend="triton", use_hadamard=True)
    with pytest.raises(ValueError, match=r"backend: MXFP4BlockScaling of .*no such option"):
        made()


def test_a_recipe_of_another_te_is_used_and_named_once(
    recipes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recipes.MXFP4BlockScaling = Rocm
    mx_recipe.set_recipe_options(use_hadamard=True)
    with caplog.at_level(logging.WARNING):
        assert made() == made() == Rocm(use_hadamard=True)
    (record,) = caplog.records
    assert "not mxflux's" in record.getMessage()
    assert "/somewhere/transformer_engine" in record.getMessage()


def test_a_missing_recipe_is_an_error_with_a_way_out(recipes: Any) -> None:
    with pytest.raises(RuntimeError, match="needs MXFP4BlockScaling") as error:
        made()
    for part in ("2.18.0 (/somewhere/transformer_engine", "mxtree build", "ROCm", "PYTHONPATH"):
        assert part in str(error.value)


@pytest.mark.parametrize("field", ["fp8_dot_product_attention", "fp8_multi_head_attention"])
def test_fp8_attention_is_refused(recipes: Any, field: str) -> None:
    recipes.MXFP4BlockScaling = Ours
    config = SimpleNamespace(**{**vars(CONFIG), field: True})
    with pytest.raises(ValueError, match=f"{field} is not supported with fp6='e2m3'"):
        mx_recipe.mx_recipe("MXFP4BlockScaling", "fp6='e2m3'", config)
