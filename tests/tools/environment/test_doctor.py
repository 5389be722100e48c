# SPDX-License-Identifier: Apache-2.0
"""`mxtree doctor`: each row in each state, against real programs and folders."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from mxtree.environment.doctor import gpu, machine, mx, network, screen, training
from mxtree.environment.doctor.row import Row, Status, missing, ok, wrong
from mxtree.environment.install import InstallRequest, install
from mxtree.environment.packages import Policy
from mxtree.git import git
from mxtree.project import Project

THIS = Path(sys.executable)


@pytest.fixture
def checkout(tmp_path: Path) -> Project:
    """Return a project that is a git checkout with the attributes that patches need."""
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "upstreams.toml").touch()
    (tmp_path / ".gitattributes").write_text("*.patch -text\n")
    git("init", "--quiet", tmp_path)
    return Project(tmp_path)


def fake_git(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    program = folder / "git"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.git().status is Status.OK
    fake_git(tmp_path, monkeypatch, "git version 2.34.1 (Apple Git-137)")
    assert machine.git() == wrong(
        "git", "2.34.1, older than 2.35", "install git >= 2.35", required=True
    )
    fake_git(tmp_path, monkeypatch, "usage: git")
    assert machine.git().status is Status.WRONG
    monkeypatch.setenv("PATH", "/nonexistent")
    assert machine.git().status is Status.MISSING


def test_patch_attributes(checkout: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.patch_attributes(checkout).status is Status.OK
    (checkout.root / ".git" / "info").mkdir(exist_ok=True)
    (checkout.root / ".git" / "info" / "attributes").write_text("*.patch text eol=crlf\n")
    row = machine.patch_attributes(checkout)
    assert row.fails
    assert row.found == "git's attribute text of *.patch is set"
    shutil.rmtree(checkout.root / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(checkout.root.parent))
    assert machine.patch_attributes(checkout).status is Status.OK
    assert machine.patch_attributes(None).status is Status.MISSING


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "new" / "cache"))
    assert machine.cache().status is Status.OK
    (tmp_path / "file").touch()
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "file"))
    assert machine.cache().fails
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path))
    monkeypatch.setattr(machine, "BUILD_GB", 1e9)
    row = machine.cache()
    assert row.fails
    assert "MXTREE_CACHE=" in row.fix


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ENVIRONMENT_GB", 0.0)
    assert machine.disk(tmp_path / "not" / "yet").status is Status.OK
    monkeypatch.setattr(machine, "ENVIRONMENT_GB", 1e9)
    assert machine.disk(tmp_path).status is Status.WRONG
    assert not machine.disk(tmp_path).fails, "an environment need not be made here"
    monkeypatch.setattr(machine, "BUILD_GB", 1e9)
    assert machine.disk(tmp_path).fails


def test_training_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_python", lambda: THIS)
    assert machine.training_python().found == str(THIS)
    monkeypatch.undo()
    monkeypatch.setenv("MXTREE_PYTHON", "/nonexistent/python")
    row = machine.training_python()
    assert (row.status, row.fails) == (Status.MISSING, False)


def test_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    row = network.package_index()
    assert (row.status, row.fails) == (Status.MISSING, True)
    assert "127.0.0.1:9" in row.found
    (tmp_path / "megatron_core-0.18.2.tar.gz").touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert network.package_index().status is Status.OK
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    assert network.package_index().fails
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    assert network.package_index().status is Status.OK


def test_gpus_of_amds_driver(tmp_path: Path) -> None:
    for node, version in enumerate([0, 90500, 90010, 110000, 120001]):
        (tmp_path / str(node)).mkdir()
        text = f"cpu_cores_count 0\ngfx_target_version {version}\nvendor_id 4098\n"
        (tmp_path / str(node) / "properties").write_text(text)
    found = gpu.from_kfd(tmp_path)
    assert found == ["gfx950", "gfx90a", "gfx1100", "gfx1201"]
    assert gpu.from_kfd(tmp_path / "nowhere") == []


def test_gpu_row() -> None:
    assert gpu.row(["gfx950"] * 8).found == "8 x gfx950 (MX formats native)"
    assert gpu.row(["sm_90", "sm_90"]).found == "2 x sm_90 (MX formats emulated)"
    assert gpu.row([]).status is Status.MISSING


def test_gpus_of_nvidias_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nprintf '9.0\\n9.0\\n'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu, "_NODES", tmp_path / "nowhere")
    assert gpu.from_drivers() == ["sm_90", "sm_90"]


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def test_an_environment_without_anything(bare_python: Path) -> None:
    rows = by_name(training.rows(bare_python, "a" * 64))
    assert rows["torch"].status is Status.MISSING
    assert "einops" in rows["packages"].found
    assert rows["mxflux"].fix == f"mxtree install --python {bare_python}"
    assert not any(row.fails for row in rows.values())


def test_a_torch_that_cannot_be_imported(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    row = by_name(training.rows(bare_python, None))["torch"]
    assert row.status is Status.WRONG
    assert row.found == "cannot be imported: OSError: libcudart.so.13: cannot open"
    (tmp_path / "torch.py").write_text("import os; os._exit(3)")
    row = by_name(training.rows(bare_python, None))["torch"]
    assert row.found == "cannot be imported: status 3"


TORCH_OF_AN_IMAGE = """\
from types import SimpleNamespace as Some
__version__ = "2.8.0+rocm7.0"
version = Some(cuda=None, hip="7.0.51831")
gpu = Some(name="AMD Instinct MI355X", gcnArchName="gfx950:sramecc+:xnack-")
cuda = Some(
    is_available=lambda: True, device_count=lambda: 8, get_device_properties=lambda index: gpu
)
"""


def test_an_image_of_amd(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(TORCH_OF_AN_IMAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rows = by_name(training.rows(bare_python, None))
    assert rows["torch"].found.startswith("2.8.0+rocm7.0 (ROCm 7.0.51831)")
    assert rows["GPU"].found == "8 x gfx950 (MX formats native)"
    assert rows["AITER"].fix == "use AMD's training image, or install amd-aiter"
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").touch()
    assert by_name(training.rows(bare_python, None))["AITER"].status is Status.OK


MX_DOCTOR = """\
import json, sys
assert sys.argv[1:] == ["--json"]
print(json.dumps({
    "environment": [],
    "packers": [{"name": "triton", "formats": ["e2m1", "e2m3"], "missing": None}],
    "backends": [{"name": "aiter", "formats": ["e2m1"], "missing": "not installed"}],
}))
"""


def test_what_mxflux_says_of_mx_formats(
    bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = tmp_path / "mxflux" / "mx" / "doctor.py"
    doctor.parent.mkdir(parents=True)
    doctor.write_text(MX_DOCTOR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    packer, backend = mx.rows(bare_python)
    assert (packer.name, packer.status, packer.found) == (
        "MX packer triton",
        Status.OK,
        "e2m1, e2m3",
    )
    assert (backend.name, backend.status) == ("MX GEMM aiter", Status.MISSING)
    assert backend.found == "not installed"
    assert not backend.fails
    for source, said in (
        ("raise SystemExit('no torch')", "no torch"),
        ("print('aiter: runs')", "of an older mxflux"),
        ("print('[]')", "of an older mxflux"),
    ):
        doctor.write_text(source)
        (row,) = mx.rows(bare_python)
        assert row.status is Status.WRONG
        assert said in row.found


@pytest.mark.parametrize("python_path", [None, os.pathsep])
@pytest.mark.parametrize("environment", ["bare_python", "python_3_10"])
def test_nothing_of_the_working_directory_runs(
    environment: str,
    python_path: str | None,
    trace: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor when an empty part of PYTHONPATH means it."""
    python = request.getfixturevalue(environment)
    site = training.inspect(python).purelib
    (site / "torch.py").write_text(TORCH_OF_AN_IMAGE)
    (site / "mxflux" / "mx").mkdir(parents=True)
    (site / "mxflux" / "mx" / "doctor.py").write_text(MX_DOCTOR)
    if python_path is not None:
        monkeypatch.setenv("PYTHONPATH", python_path)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    rows = by_name(screen.examine(python))
    assert rows["MX packer triton"].found == "e2m1, e2m3"
    assert rows["torch"].status is Status.OK
    assert not trace.exists(), trace.read_text()


def test_whose_distributions_they_are(tree: Path, bare_python: Path) -> None:
    install(InstallRequest(tree, python=bare_python, dependencies=Policy.IGNORE))
    digest = json.loads((tree / "tree.json").read_text())["digest"]
    assert by_name(training.rows(bare_python, digest))["mxflux"].status is Status.OK
    other = by_name(training.rows(bare_python, "f" * 64))["mxflux"]
    assert (other.status, other.found.rpartition(", ")[2]) == (
        Status.WRONG,
        "of another tree than ffffffffffff",
    )
    site = Path(training.inspect(bare_python).purelib)
    next(site.glob("mxflux-*.dist-info/mxtree.json")).unlink()
    foreign = by_name(training.rows(bare_python, digest))["mxflux"]
    assert "--replace mxflux" in foreign.fix


def test_the_screen_and_its_machine_form() -> None:
    rows = [
        ok("git", "2.39", required=True),
        missing("torch", "not installed", "mxtree install"),
        wrong("cache", "/c: 0.1 GB free", "make room", required=True),
    ]
    assert screen.text(rows).splitlines() == [
        "ok       git    2.39",
        "missing  torch  not installed",
        "                optional: mxtree install",
        "wrong    cache  /c: 0.1 GB free",
        "                make room",
        "",
        "to be put right: cache",
    ]
    assert screen.verdict(rows[:2]) == "nothing required is wrong"
    found = json.loads(screen.as_json(rows))
    assert found["ok"] is False
    assert found["rows"][1] == {
        "name": "torch",
        "status": "missing",
        "required": False,
        "found": "not installed",
        "fix": "mxtree install",
    }


def test_everything_together_outside_a_checkout(
    tmp_path: Path, bare_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXTREE_PROJECT", raising=False)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    monkeypatch.setenv("MXTREE_CACHE", str(tmp_path / "cache"))
    rows = screen.examine(bare_python)
    assert by_name(rows)["patches as bytes"].found == "not in a checkout of mxtree"
    assert [row.name for row in rows if row.fails] == []
