# SPDX-License-Identifier: Apache-2.0
"""`mxtree report run|compare|mlperf` as they are typed, on the checkout's own overlay."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mxtree.errors import ExitCode

CHECKOUT = Path(__file__).parents[3]


def mxtree(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MXTREE_PROJECT": str(CHECKOUT)}
    return subprocess.run(
        [sys.executable, "-m", "mxtree", *map(str, arguments)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def make_run(folder: Path, *, above: float = 0.0) -> Path:
    """A run directory with a recipe and losses alone."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(f"name: {folder.name}\nschedule: {{seed: 1}}\n")
    lines = [
        {"event": "train", "step": n, "samples": 8 * n, "loss": math.exp(-n / 20) + above}
        for n in range(1, 51)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_run_writes_html_and_markdown_and_says_what_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    done = mxtree("report", "run", run)
    assert done.returncode == ExitCode.OK, done.stderr
    assert "not recorded: run.json" in done.stdout
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    assert (run / "report.md").read_text().startswith("# Run a")
    assert f"written: {run / 'report.html'}" in done.stderr


def test_compare_writes_every_form_and_exits_with_the_verdict(tmp_path: Path) -> None:
    base, far = make_run(tmp_path / "base"), make_run(tmp_path / "far", above=0.5)
    out = tmp_path / "out" / "compare.html"
    done = mxtree("report", "compare", base, far, "-o", out)
    assert done.returncode == ExitCode.CHECK_FAILED, done.stderr
    assert "far diverges in training loss" in done.stdout
    assert {path.suffix for path in out.parent.iterdir()} == {
        ".html", ".md", ".json", ".svg", ".png",
    }  # fmt: skip
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in out.with_suffix(".svg").read_text()
    assert json.loads(out.with_suffix(".json").read_text())["exit_code"] == 1
    near = mxtree("report", "compare", base, far, "--tolerance", "10", "--json")
    assert near.returncode == ExitCode.OK
    assert json.loads(near.stdout)["verdict"].startswith("the same within 1000.000%")
    assert near.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "gone"), "next: ./mxtree run RECIPE --run-dir gone"),
        (("compare", "gone", "gone"), "error: no such run: gone\n"),
        (("compare", "tests"), "two runs at least"),
        (("compare", "a/flux_tiny", "tests"), "next: ./mxtree run cpu/flux_tiny --run-dir a/flux"),
        (
            ("mlperf", str(CHECKOUT / "runs" / "flux_12b_schnell_mxfp4_local"), "gone"),
            "next: ./mxtree run RECIPE --run-dir",
        ),
    ],
)
def test_what_cannot_be_reported_exits_4_and_names_it(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = mxtree("report", *arguments)
    assert done.returncode == ExitCode.COULD_NOT_CHECK
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    (tmp_path / "file").write_text("")
    done = mxtree("report", "run", run, "-o", tmp_path / "file" / "a.html")
    assert done.returncode == ExitCode.COULD_NOT_CHECK
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


def test_mlperf_needs_an_installed_tree_and_says_so(tmp_path: Path) -> None:
    done = mxtree("report", "mlperf", tmp_path, "--tree", tmp_path / "tree")
    assert done.returncode == ExitCode.USAGE
    assert "is not installed" in done.stderr
    assert "./mxtree install" in done.stderr
