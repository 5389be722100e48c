# SPDX-License-Identifier: Apache-2.0
"""Reading constants without running the file that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.environment import static

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
import no_such_module
A = 1
B: list[str] = ["x", "y"]
C = undefined()
D = E = 2
def f():
    F = "inner"
    return (3, 10, 0)
def g():
    return undefined()
setup(name="n", version=A, extra=["e"], **more)
other(name="not this")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return path


def test_assignments(source: Path) -> None:
    assert static.assignments(source) == {"A": 1, "B": ["x", "y"], "F": "inner"}


def test_call_arguments(source: Path) -> None:
    assert static.call_arguments(source, "setup") == {"name": "n", "extra": ["e"]}


@pytest.mark.parametrize(("function", "value"), [("f", (3, 10, 0)), ("g", None), ("h", None)])
def test_returned(source: Path, function: str, value: object) -> None:
    assert static.returned(source, function) == value
