# SPDX-License-Identifier: Apache-2.0
"""docs/mx.md: its examples run, its tables name every format, mode, layout and backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxflux import mx
from mxflux.mx.backends import BACKENDS
from mxflux.mx.plans import PLANS

PAGE = (Path(__file__).resolve().parents[3] / "docs/mx.md").read_text(encoding="utf-8")


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    # TE's runs in tests/tree/te/test_docs.py.
    blocks = [block for block in blocks if "transformer_engine" not in block]
    assert len(blocks) == 2
    exec("\n".join(blocks), {})
    assert "| 1 | wgrad | e2m3 | emulated | 1 |" in capsys.readouterr().out


def test_the_tables_are_complete_and_right() -> None:
    for fmt in mx.FORMATS.values():
        assert f"| {fmt.name} | {fmt.bits} | {fmt.bias} | {fmt.largest:g} |" in PAGE
    for name in (*mx.LAYOUTS, *BACKENDS, *PLANS):
        assert f"`{name}`" in PAGE
    for mode in mx.ScaleMode:
        assert re.search(rf"^\| {mode.value}\b", PAGE, re.MULTILINE)


def test_every_public_name_exists() -> None:
    assert sorted(mx.__all__) == sorted(set(mx.__all__))
    for name in mx.__all__:
        assert hasattr(mx, name)
