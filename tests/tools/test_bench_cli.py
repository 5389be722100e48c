# SPDX-License-Identifier: Apache-2.0
"""`mxtree bench step` as it is typed: what it hands over, and what it says without a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mxtree.cli import app
from mxtree.environment import modules
from mxtree.errors import FatalError


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    handed: list[Any] = []
    python = tmp_path / "python"
    python.touch()

    def run_module(*arguments: Any) -> int:
        handed.extend(arguments)
        return 0

    monkeypatch.setattr(modules, "run_module", run_module)
    line = "bench step --preset flux_12b --micro-batch 32 --device cuda --recompute"
    line += f" --compare eager,compile,diffusers --out {tmp_path} --python {python}"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert handed[:2] == [python, "mxflux.benchmarks.step"]
    given = dict(zip(handed[2][::2], handed[2][1::2], strict=False))
    assert given["--compare"] == "eager,compile,diffusers"
    assert given["--blocks"] == "joint,single"
    assert "--recompute" in handed[2]
    assert handed[2][-1] == str(tmp_path)


def test_without_a_tree_the_next_command_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "step", "--tree", str(tmp_path / "none")])
    assert isinstance(result.exception, FatalError)
    assert "is not installed" in str(result.exception)
