# SPDX-License-Identifier: Apache-2.0
"""A tree with the recipes but without a patch that they rely on is found out, not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformer_engine.common import recipe as te_recipe
from transformer_engine.pytorch.cpp_extensions import gemm
from transformer_engine.pytorch.module import base
from transformer_engine.pytorch.ops import op

from mxflux.te import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.control("has no attribute 'MXFP4BlockScaling'")


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    """Patches are tried once a process."""
    tree.forget()
    yield
    tree.forget()


def make_quantizer() -> Any:
    return te_recipe.MXFP4BlockScaling(backend="emulated").qfactory("linear_input")


def test_the_whole_series_passes() -> None:
    assert make_quantizer().role == "input"
    assert tree.problems() == ()


def test_without_0001_weight_gradients_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = gemm.custom_gemm

    def stock(*args: Any, out: Any, accumulate: bool, **options: Any) -> Any:
        return patched(*args, **options)

    monkeypatch.setattr(gemm, "custom_gemm", stock)
    with pytest.raises(RuntimeError, match=r"gradient does not reach main_grad.*mxtree build"):
        make_quantizer()


@pytest.mark.control("base' .*has no attribute 'is_custom'")
def test_without_0002_biases_would_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "is_custom", lambda _quantizer: False)
    with pytest.raises(RuntimeError, match="bias has no gradient"):
        make_quantizer()


def test_without_0003_wgrad_would_be_taken_for_fprop(monkeypatch: pytest.MonkeyPatch) -> None:
    patched = gemm.custom_gemm

    def stock(*args: Any, layout: str, **options: Any) -> Any:
        return patched(*args, layout=layout if options.get("grad") else "TN", **options)

    monkeypatch.setattr(gemm, "custom_gemm", stock)
    with pytest.raises(RuntimeError, match="gradient does not reach main_grad"):
        make_quantizer()


def test_without_0008_modules_would_keep_old_quantizers(monkeypatch: pytest.MonkeyPatch) -> None:
    cls, stock = base.TransformerEngineBaseModule, lambda *_args: None
    monkeypatch.setattr(cls, "set_meta_tensor", stock)
    with pytest.raises(RuntimeError, match="a module keeps the quantizers of the recipe before"):
        make_quantizer()


def test_without_0008_operations_would_keep_old_quantizers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(op.BasicOperation, "reset_recipe_state", lambda *_args, **_options: None)
    with pytest.raises(RuntimeError, match="operation keeps the quantizers of the recipe before"):
        make_quantizer()


def test_without_0009_an_unknown_storage_would_run_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    def stock(_tensor: object, _usage: str) -> torch.Tensor:
        return torch.ones(1)

    monkeypatch.setattr(gemm, "_unwrap_tensor", stock, raising=False)
    with pytest.raises(RuntimeError, match="what no GEMM knows is multiplied in BF16"):
        make_quantizer()
