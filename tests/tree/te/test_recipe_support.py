# SPDX-License-Identifier: Apache-2.0
"""Patch 0004: a custom recipe that cannot run says so when autocast is entered."""

from __future__ import annotations

import pytest
import transformer_engine.pytorch as te
from support.te_exact import ExactFactory
from transformer_engine.common.recipe import CustomRecipe
from transformer_engine.pytorch.quantization import FP8GlobalStateManager


class Elsewhere(CustomRecipe):
    """A recipe for hardware that is not here."""

    def check_support(self) -> tuple[bool, str]:
        return False, "needs a machine with blinking lights"


@pytest.mark.control("DID NOT RAISE")
def test_an_unsupported_recipe_stops_at_autocast_entry() -> None:
    context = te.autocast(recipe=Elsewhere(qfactory=ExactFactory()))
    with pytest.raises(RuntimeError, match="blinking lights"):
        context.__enter__()
    assert not FP8GlobalStateManager.is_fp8_enabled()


def test_a_disabled_autocast_asks_nobody() -> None:
    with te.autocast(enabled=False, recipe=Elsewhere(qfactory=ExactFactory())):
        assert not FP8GlobalStateManager.is_fp8_enabled()


def test_other_custom_recipes_are_supported() -> None:
    with te.autocast(recipe=CustomRecipe(qfactory=ExactFactory())):
        assert FP8GlobalStateManager.is_fp8_enabled()
    assert not FP8GlobalStateManager.is_fp8_enabled()
