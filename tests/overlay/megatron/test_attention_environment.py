# SPDX-License-Identifier: Apache-2.0
"""NVTE_*_ATTN for each backend, over what the image presets, before and after TE's selection."""

from __future__ import annotations

import enum
import logging
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from mxflux.megatron import attention

VARIABLES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
Backend = enum.Enum("Backend", ["flash", "fused", "unfused", "local", "auto"])


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing preset, no Transformer Engine imported."""
    monkeypatch.delitem(sys.modules, attention._TE_ATTENTION, raising=False)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def preset(patch: pytest.MonkeyPatch, values: str) -> None:
    """Set the variables to one character each, "-" for unset and "_" for blank."""
    for name, value in zip(VARIABLES, values, strict=True):
        if value != "-":
            patch.setenv(name, value.replace("_", " "))


def result(backend: str) -> str:
    """The variables, in the same notation, after ``backend`` was chosen."""
    attention.set_attention_environment(Backend[backend])
    return "".join(os.environ.get(name, "-") for name in VARIABLES)


@pytest.mark.parametrize(
    ("backend", "before", "after"),
    [
        ("flash", "---", "100"),
        ("fused", "---", "010"),
        ("unfused", "---", "001"),
        ("local", "---", "000"),
        ("auto", "---", "111"),
        ("fused", "101", "010"),
        ("local", "111", "000"),
        ("flash", "_1-", "100"),
        ("auto", "01-", "011"),
        ("auto", "000", "000"),
        ("auto", "_0_", "101"),
    ],
)
def test_values(monkeypatch: pytest.MonkeyPatch, backend: str, before: str, after: str) -> None:
    """An explicit choice sets all three; auto sets what is unset or blank."""
    preset(monkeypatch, before)
    assert result(backend) == after
    assert result(backend) == after


@pytest.mark.parametrize(
    ("backend", "before", "logged"),
    [
        ("fused", "10-", [("WARNING", "NVTE_FLASH_ATTN 1 -> 0, NVTE_FUSED_ATTN 0 -> 1")]),
        ("fused", "---", [("INFO", "NVTE_UNFUSED_ATTN unset -> 0")]),
        ("auto", "0--", [("WARNING", "NVTE_FLASH_ATTN 0 -> 0, NVTE_FUSED_ATTN unset -> 1")]),
        ("fused", "010", []),
        ("auto", "000", []),
    ],
)
def test_one_line_per_change(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    backend: str,
    before: str,
    logged: list[tuple[str, str]],
) -> None:
    """One line, before -> after, when something changes; a warning when it was preset."""
    preset(monkeypatch, before)
    with caplog.at_level(logging.INFO):
        result(backend)
        result(backend)
    assert len(caplog.records) == len(logged)
    for record, (level, part) in zip(caplog.records, logged, strict=True):
        assert record.levelname == level
        assert record.getMessage().startswith(f"attention_backend={backend} sets NVTE_FLASH_ATTN ")
        assert part in record.getMessage()


@pytest.mark.parametrize("backend", ["fused", "", None, 2, logging])
def test_no_member_is_refused(backend: Any) -> None:
    """A name that skipped the conversion selects nothing, so it raises."""
    with pytest.raises(TypeError, match="is no AttnBackend"):
        attention.set_attention_environment(backend)


def selected(patch: pytest.MonkeyPatch, **attributes: Any) -> None:
    """Put a stand-in for TE's attention module in place."""
    module = ModuleType(attention._TE_ATTENTION)
    vars(module).update(attributes)
    patch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("before", ["---", "110", "111"])
def test_too_late(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """After TE's selection a change raises and leaves the environment alone."""
    selected(monkeypatch, _attention_backends={"attention_params": object()})
    preset(monkeypatch, before)
    with pytest.raises(RuntimeError, match="has already selected its attention backend") as error:
        result("fused")
    assert "".join(os.environ.get(name, "-") for name in VARIABLES) == before
    exports = "export NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=1 NVTE_UNFUSED_ATTN=0"
    assert str(error.value).endswith(exports)


def test_no_change_is_never_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset counts as 1 for TE, so spelling that out changes nothing."""
    selected(monkeypatch, _attention_backends={"attention_params": object()})
    assert result("auto") == "111"
    preset(monkeypatch, "010")
    assert result("fused") == "010"


def test_before_the_first_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """TE imported but not called yet: in time."""
    selected(monkeypatch, _attention_backends={"attention_params": None})
    assert result("fused") == "010"


def test_te_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TE whose selection cannot be seen is treated as having selected."""
    selected(monkeypatch)
    with pytest.raises(RuntimeError, match="does not tell whether it has selected"):
        result("fused")
