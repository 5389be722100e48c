# SPDX-License-Identifier: Apache-2.0
"""The MXFP4 recipe and the provider registry, as far as they need no Megatron."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mxflux.megatron import fp4

CONFIG = SimpleNamespace(fp8_dot_product_attention=False, fp8_multi_head_attention=False)


@pytest.fixture
def fp4_utils(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for megatron.core.fp4_utils with the hook of the patch."""
    module = ModuleType("megatron.core.fp4_utils")
    module.__file__ = "/somewhere/fp4_utils.py"
    vars(module)["fp4_context_provider"] = None
    monkeypatch.setitem(sys.modules, "megatron", ModuleType("megatron"))
    monkeypatch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for transformer_engine.common.recipe that is empty."""
    te = ModuleType("transformer_engine")
    recipe = ModuleType("transformer_engine.common.recipe")
    for name in ("transformer_engine", "transformer_engine.common"):
        monkeypatch.setitem(sys.modules, name, te)
    monkeypatch.setitem(sys.modules, recipe.__name__, recipe)
    return recipe


def provider(_config: Any) -> contextlib.AbstractContextManager[None]:
    """An autocast that does nothing."""
    return contextlib.nullcontext()


def test_recipe_is_missing(recipes: Any) -> None:
    """The error says what asks for it; more in test_mx_recipe.py."""
    with pytest.raises(RuntimeError, match="fp4_recipe='mxfp4' needs MXFP4BlockScaling"):
        fp4.mxfp4_recipe(CONFIG)


def test_provider_is_asked_with_the_config(fp4_utils: Any) -> None:
    """Called once with (config), and its object comes back."""
    context = contextlib.nullcontext()
    calls = []
    fp4.set_fp4_context_provider(lambda config: calls.append(config) or context)
    assert fp4_utils.fp4_context_provider(CONFIG) is context
    assert calls == [CONFIG]


def test_providers_do_not_replace_each_other(fp4_utils: Any) -> None:
    """The second one is refused until the first is gone."""
    fp4.set_fp4_context_provider(provider)
    fp4.set_fp4_context_provider(provider)
    with pytest.raises(RuntimeError, match="is already the FP4 context provider"):
        fp4.set_fp4_context_provider(lambda _config: contextlib.nullcontext())
    assert fp4_utils.fp4_context_provider.provider is provider
    fp4.set_fp4_context_provider(None)
    assert fp4_utils.fp4_context_provider is None


def test_stock_megatron_is_refused(fp4_utils: Any) -> None:
    """Without the hook nobody would ask the provider."""
    del fp4_utils.fp4_context_provider
    with pytest.raises(RuntimeError, match=r"/somewhere/fp4_utils\.py has no hook"):
        fp4.set_fp4_context_provider(provider)


def test_captured_graphs_are_refused(fp4_utils: Any) -> None:
    """A graph captured by TE runs TE's autocast."""
    fp4.set_fp4_context_provider(provider)
    with pytest.raises(ValueError, match="cuda_graph_impl='transformer_engine' captures"):
        fp4_utils.fp4_context_provider(SimpleNamespace(cuda_graph_impl="transformer_engine"))
