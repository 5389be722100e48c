# SPDX-License-Identifier: Apache-2.0
"""`mxtree ckpt` hands over to the environment of the tree, or says how to make it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mxtree.cli import ckpt
from mxtree.errors import ExitCode

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mxtree.project import Project

    Run = Callable[..., subprocess.CompletedProcess[str]]


def test_every_command_needs_an_installed_tree(mxtree: Run, project: Project) -> None:
    lines = [
        ("verify", "x"), ("inspect", "x"), ("diff", "x", "y"), ("export", "x", "y"),
        ("convert", "x", "y", "--to", "bfl"),
    ]  # fmt: skip
    for line in lines:
        result = mxtree("ckpt", *line)
        assert result.returncode == ExitCode.USAGE
        assert f"the tree {project.default_tree} is not installed" in result.stderr
        assert "./mxtree build && ./mxtree install" in result.stderr


def test_an_interpreter_without_a_tree_is_refused(mxtree: Run, tmp_path: Path) -> None:
    result = mxtree("ckpt", "verify", "x", "--python", str(tmp_path / "python"))
    assert result.returncode == ExitCode.USAGE
    assert f"{tmp_path / 'python'} does not exist" in result.stderr


def test_options_come_before_paths_that_may_begin_with_a_dash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[Sequence[str]] = []

    def record(_python: Path, module: str, line: Sequence[str]) -> int:
        lines.append([module, *line])
        return 1

    monkeypatch.setattr("mxtree.environment.modules.run_module", record)
    (tmp_path / "python").touch()
    status = ckpt.convert(
        tmp_path / "-a",
        tmp_path / "b",
        to="diffusers",
        dtype="bfloat16",
        allow_nan=True,
        tree=tmp_path,
        python=tmp_path / "python",
    )
    options = ["--to=diffusers", "--dtype=bfloat16", "--allow-nan"]
    paths = [str(tmp_path / "-a"), str(tmp_path / "b")]
    assert (status, lines) == (1, [["mxflux.checkpoint.cli", "convert", *options, "--", *paths]])
