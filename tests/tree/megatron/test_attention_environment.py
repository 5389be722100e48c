# SPDX-License-Identifier: Apache-2.0
"""NVTE_*_ATTN: as in stock where nothing is preset; on images that preset them, choice wins."""

from __future__ import annotations

import ast
import logging
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.transformer.enums import AttnBackend
from support import megatron_config

VARIABLES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
WANTED = {"flash": "100", "fused": "010", "unfused": "001", "local": "000", "auto": "111"}
ROCM_IMAGE = {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "1"}
TE_ATTENTION = "transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is preset, TE has selected nothing, and what a test leaves behind is undone."""
    monkeypatch.setitem(sys.modules, TE_ATTENTION, None)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def _rocm_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a ROCm image presets."""
    for name, value in ROCM_IMAGE.items():
        monkeypatch.setenv(name, value)


def choose(backend: str) -> str:
    """The values of the variables, "-" for unset, after a language model with this config."""
    config = megatron_config.direct(attention_backend=AttnBackend[backend])
    LanguageModule._set_attention_backend(SimpleNamespace(config=config))
    return "".join(os.environ.get(name, "-") for name in VARIABLES)


@pytest.mark.parametrize("backend", WANTED)
def test_nothing_preset(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Stock behaviour, twice (two model chunks), and without the overlay."""
    monkeypatch.setitem(sys.modules, "mxflux", None)
    monkeypatch.delitem(sys.modules, "mxflux.megatron.attention", raising=False)
    assert choose(backend) == WANTED[backend]
    assert choose(backend) == WANTED[backend]


@pytest.mark.usefixtures("_rocm_image")
@pytest.mark.control("NVTE_FLASH_ATTN set to 0, but expected 1")
def test_auto_keeps_the_preset() -> None:
    """auto opens only what the image leaves unset; both model chunks agree."""
    assert choose("auto") == "011"
    assert choose("auto") == "011"


@pytest.mark.usefixtures("_rocm_image")
@pytest.mark.control("NVTE_F[LASHUED]*_ATTN set to [01], but expected [01]")
@pytest.mark.parametrize("backend", ["flash", "unfused", "local"])
def test_explicit_choice_wins(caplog: pytest.LogCaptureFixture, backend: str) -> None:
    """An explicit choice sets all three and says so once, whatever the image presets."""
    with caplog.at_level(logging.INFO):
        assert choose(backend) == WANTED[backend]
        assert choose(backend) == WANTED[backend]
    flash, fused, unfused = WANTED[backend]
    line = (
        f"attention_backend={backend} sets NVTE_FLASH_ATTN 0 -> {flash}, "
        f"NVTE_FUSED_ATTN 1 -> {fused}, NVTE_UNFUSED_ATTN unset -> {unfused}"
    )
    assert [record.getMessage() for record in caplog.records] == [line]


@pytest.mark.usefixtures("_rocm_image")
def test_choice_that_agrees_with_the_preset(caplog: pytest.LogCaptureFixture) -> None:
    """fused on a ROCm image is stock behaviour: nothing to override, nothing to say."""
    with caplog.at_level(logging.INFO):
        assert choose("fused") == "010"
    assert not caplog.records


@pytest.mark.usefixtures("_rocm_image")
@pytest.mark.control("AssertionError: NVTE_FLASH_ATTN set to 0")
def test_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """After TE has selected a backend another choice raises, and changes nothing."""
    attention = ModuleType(TE_ATTENTION)
    attention._attention_backends = {"attention_params": object()}
    monkeypatch.setitem(sys.modules, TE_ATTENTION, attention)
    with pytest.raises(RuntimeError, match="has already selected its attention backend"):
        choose("flash")
    assert {name: os.environ.get(name) for name in VARIABLES} == {
        **ROCM_IMAGE,
        "NVTE_UNFUSED_ATTN": None,
    }
    assert choose("auto") == "011"


def test_te_keeps_its_selection_where_we_look() -> None:
    """The TE under test has the module, the cache and the key that the check reads."""
    te = PathFinder.find_spec("transformer_engine")
    if te is None or te.origin is None:
        pytest.skip("no Transformer Engine on PYTHONPATH, so its source cannot be read")
    path = Path(te.origin).parent.joinpath(*TE_ATTENTION.split(".")[1:]).with_suffix(".py")
    caches = [
        ast.unparse(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_attention_backends"
    ]
    assert len(caches) == 1
    assert "'attention_params': None" in caches[0]
