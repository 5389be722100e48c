# SPDX-License-Identifier: Apache-2.0
"""`mxtree recipe` as a user meets it: tables, JSON, faults with their places, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mxtree.errors import ExitCode

ROOT = Path(__file__).parents[2]
BAD = """\
device: cpu
model: {preset: flux_tinny}
data: {kind: digits}
schedule: {train_iters: 10, micro_batch_size: 4, global_batch_size: 8}
optimizer: {lr: "2e-4"}
launch: {nproc_per_node: 3}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run() -> Run:
    """The command line in this checkout."""

    def call(*args: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        environment = {key: os.environ[key] for key in os.environ if key != "FLUX_DATA_PATH"}
        environment |= {"PYTHONPATH": str(ROOT / "tools"), "MXTREE_PROJECT": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "mxtree", "recipe", *map(str, args)],
            text=True,
            capture_output=True,
            check=False,
            env=environment,
            cwd=cwd,
        )

    return call


def test_ls_and_its_json(run: Run) -> None:
    table = run("ls")
    assert table.returncode == ExitCode.OK, table.stderr
    line = next(line for line in table.stdout.splitlines() if line.startswith("cpu/flux_tiny "))
    assert "float32 (local)" in line
    listed = json.loads(run("ls", "--json").stdout)
    entries = {entry["name"]: entry for entry in listed["recipes"]}
    assert listed["format"] == 1
    assert entries["mi355x/flux_12b_schnell_mxfp4_te"]["parameters"] == 11_891_178_560
    assert entries["h200/flux_535m_mxfp6"]["precision"] == "mxfp6 e2m3 (local)"
    assert not [entry["problem"] for entry in entries.values() if entry["problem"]]


def test_every_shipped_recipe_validates(run: Run) -> None:
    result = run("validate", "recipes")
    assert result.returncode == ExitCode.OK, result.stdout
    counted = result.stdout.splitlines()[-1].split()
    assert counted[0] == counted[2] != "0"


def test_every_fault_is_named_and_the_exit_status_is_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    result = run("validate", "bad.yaml", "--set", "logging.intervl=3", cwd=tmp_path)
    assert result.returncode == ExitCode.CHECK_FAILED
    assert [line.split(": ")[0] for line in result.stdout.splitlines()[:-1]] == [
        "bad.yaml:2:17",
        "bad.yaml:4:69",
        "bad.yaml:5:17",
        "override 'logging.intervl=3':1:1",
    ]
    assert "did you mean 'flux_tiny'?" in result.stdout
    assert result.stdout.splitlines()[-1] == "0 of 1 recipes can run"
    assert result.stderr == ""
    found = json.loads(run("validate", "bad.yaml", "--json", cwd=tmp_path).stdout)
    assert found["recipes"][0]["ok"] is False
    first = found["recipes"][0]["problems"][0]
    assert (first["file"], first["line"], first["column"]) == ("bad.yaml", 2, 17)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("validate", "nothing.yaml"), "nothing.yaml: no such file"),
        (("validate", "tests/tools/recipes-none"), "no such file"),
        (("validate", "docs"), "docs: no recipe in this folder"),
        (("show", "cpu/flux_tinny"), "did you mean cpu/flux_tiny?"),
        (("show", "cpu/flux_tiny", "model.presett=x"), "unknown key 'presett'"),
        (("memory", "cpu/flux_tiny", "--dp", "1,x"), "--dp 1,x: not a list of positive numbers"),
        (("diff", "cpu/flux_tiny", "cpu/none"), "cpu/none: no such file"),
    ],
)
def test_what_cannot_be_read_has_exit_status_2(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.returncode == ExitCode.USAGE
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_show_resolved_is_a_recipe_that_shows_the_same(run: Run, tmp_path: Path) -> None:
    first = run("show", "cpu/flux_tiny_mxfp4", "schedule.seed=7", "--resolved")
    assert first.returncode == ExitCode.OK, first.stderr
    assert "  seed: 7  # @ command line\n" in first.stdout
    assert "  preset: flux_tiny  # @ recipes/base/flux_tiny.yaml:" in first.stdout
    (tmp_path / "again.yaml").write_text(first.stdout)
    second = run("show", tmp_path / "again.yaml", "--resolved")
    assert second.stdout == first.stdout


def test_show_says_what_is_set_and_where(run: Run) -> None:
    shown = run("show", "cpu/flux_tiny").stdout.splitlines()
    assert shown[0].split() == ["key", "value", "from"]
    assert any(line.split()[:2] == ["model.preset", "flux_tiny"] for line in shown)
    assert not any("default" in line for line in shown)
    found = json.loads(run("show", "cpu/flux_tiny", "--json").stdout)
    assert found["values"]["launch.nproc_per_node"] == 2
    assert found["origins"]["compile.enable"] == "default"


def test_diff_names_keys_values_and_places(run: Run) -> None:
    result = run("diff", "cpu/flux_tiny", "cpu/flux_tiny_mxfp4")
    assert result.returncode == ExitCode.OK, result.stderr
    assert "precision.fp4_recipe" in result.stdout
    assert "mxfp4  [recipes/cpu/flux_tiny_mxfp4.yaml:" in result.stdout
    same = run("diff", "cpu/flux_tiny", "cpu/flux_tiny")
    assert same.stdout == "the recipes say the same\n"
    rows = json.loads(run("diff", "cpu/flux_tiny", "cpu/flux_tiny_mxfp4", "--json").stdout)
    assert {"key": "precision.fp4", "left": None, "right": "e2m1"} in rows["differences"]


def test_memory_of_12b_by_data_parallel_size(run: Run) -> None:
    name = "mi355x/flux_12b_schnell_mxfp4_te"
    found = json.loads(run("memory", name, "--dp", "1,8", "--json").stdout)
    assert (found["parameters"], found["linears_in_blocks"]) == (11_891_178_560, 304)
    one, eight = found["ranks"]
    assert one["parameters"] == eight["parameters"] == 2 * 11_891_178_560
    assert one["optimizer"] == 12 * 11_891_178_560 == 8 * eight["optimizer"]
    text = run("memory", name, "--nproc", "8").stdout
    assert "11,891,178,560 parameters" in text
    assert "of 268" in text


def test_the_schema_knows_every_key(run: Run) -> None:
    schema = json.loads(run("schema").stdout)
    assert schema["additionalProperties"] is False
    assert {"base", "model", "device"} <= set(schema["properties"])
    model = schema["$defs"]["Model"]["properties"]["preset"]
    assert model["enum"] == ["flux_12b", "flux_535m", "flux_tiny"]
    assert model["description"]


def test_the_reference_is_the_schema(run: Run) -> None:
    page = (ROOT / "docs" / "reference" / "recipes.md").read_text(encoding="utf-8")
    generated = run("schema", "--markdown").stdout
    assert generated.strip() in page, "./mxtree recipe schema --markdown and paste it"
