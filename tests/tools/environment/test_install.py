# SPDX-License-Identifier: Apache-2.0
"""`mxtree install`, into real environments."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from environment_trees import make_tree

from mxtree.environment import requirements
from mxtree.environment.install import InstallRequest, install
from mxtree.environment.interpreter import inspect
from mxtree.environment.packages import Policy
from mxtree.errors import FatalError
from mxtree.tree.manifest import load_manifest
from mxtree.tree.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

MODULES = ["megatron.core", "transformer_engine", "mxflux"]


def into(tree: Path, python: Path, **options: object) -> InstallRequest:
    return InstallRequest(tree, python=python, dependencies=Policy.IGNORE, **options)  # type: ignore[arg-type]


def put(python: Path, name: str, version: str, files: dict[str, str] | None = None) -> None:
    """Put a foreign distribution into the environment, as some other installer would."""
    site = inspect(python).purelib
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    for path, text in (files or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)


@pytest.fixture
def env_with(bare_python: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an environment for which the only requirements are two modules."""
    listed = tmp_path / "requirements.txt"
    listed.write_text("torch==2.13.0  # reason\nsix  # reason\n")
    monkeypatch.setattr(requirements, "FILE", listed)
    return bare_python


def test_the_tree_is_what_is_imported_and_named(tree: Path, bare_python: Path) -> None:
    result = install(into(tree, bare_python))
    digest = load_manifest(tree).digest
    assert result.versions == {
        "megatron-core": f"0.18.2+mxtree.{digest[:12]}",
        "transformer-engine": f"2.18.0+mxtree.{digest[:12]}",
        "mxflux": f"0.1.0+mxtree.{digest[:12]}",
    }
    after = inspect(bare_python, MODULES)
    assert after.modules["megatron.core"] == str(tree / "megatron-lm/megatron/core/__init__.py")
    assert after.modules["mxflux"] == str(tree / "overlay/mxflux/__init__.py")
    assert after.distributions["mxflux"].note == {"digest": digest, "tree": str(tree)}
    assert verify(tree) == [], "installing must not write into the tree"
    assert "raises without them" in result.notes[0]


def test_pip_knows_it_as_editable_and_can_remove_it(tree: Path, pip_python: Path) -> None:
    install(into(tree, pip_python))
    command = [pip_python, "-m", "pip", "list", "--editable", "--format=json"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    locations = {item["name"]: item["editable_project_location"] for item in listed}
    assert locations["megatron-core"] == str(tree / "megatron-lm")
    assert locations["mxflux"] == str(tree / "overlay")
    remove = [pip_python, "-m", "pip", "uninstall", "--yes", "megatron-core", "mxflux"]
    subprocess.run([*remove, "transformer-engine"], check=True, capture_output=True)
    assert inspect(pip_python, MODULES).modules == dict.fromkeys(MODULES)


@pytest.mark.parametrize("environment", ["pip_python", "bare_python", "python_3_10"])
def test_nothing_of_the_working_directory_runs(
    tree: Path, environment: str, trace: Path, request: pytest.FixtureRequest
) -> None:
    """Whether pip is the environment's or the tool's, and in TransformerEngine's own check."""
    python = request.getfixturevalue(environment)
    put(python, "transformer-engine-cu13", "2.18.0")
    install(into(tree, python, public_version=True))
    assert not trace.exists(), trace.read_text()


def test_another_tree_takes_the_place_of_the_first(
    tree: Path, bare_python: Path, tmp_path: Path
) -> None:
    install(into(tree, bare_python))
    copy = shutil.copytree(tree, tmp_path / "copy with the same digest", symlinks=True)
    install(into(copy, bare_python))
    found = inspect(bare_python, MODULES).modules
    assert all(str(location).startswith(str(copy)) for location in found.values())


def test_a_foreign_distribution_stops_it_before_anything_changes(
    tree: Path, bare_python: Path
) -> None:
    put(bare_python, "megatron-core", "0.17.1", {"megatron/core/__init__.py": ""})
    with pytest.raises(FatalError, match="mxtree did not install") as caught:
        install(into(tree, bare_python))
    assert "megatron-core 0.17.1 in " in caught.value.details[0]
    assert "--replace megatron-core" in str(caught.value.hint)
    assert "mxflux" not in inspect(bare_python).distributions


def test_replace_removes_the_foreign_one(tree: Path, bare_python: Path) -> None:
    put(bare_python, "megatron-core", "0.17.1")
    result = install(into(tree, bare_python, replace=frozenset({"megatron-core"})))
    after = inspect(bare_python).distributions["megatron-core"]
    assert after.version == result.versions["megatron-core"]


def test_without_leaves_the_foreign_one_as_it_is(tree: Path, bare_python: Path) -> None:
    put(bare_python, "transformer-engine", "2.8.0+rocm", {"transformer_engine/__init__.py": ""})
    result = install(into(tree, bare_python, without=frozenset({"transformer-engine"})))
    assert "transformer-engine" not in result.versions
    after = inspect(bare_python, MODULES)
    assert after.distributions["transformer-engine"].version == "2.8.0+rocm"
    assert str(after.modules["transformer_engine"]).startswith(str(after.purelib))


def test_without_removes_what_an_earlier_install_of_ours_left(
    tree: Path, bare_python: Path
) -> None:
    install(into(tree, bare_python))
    install(into(tree, bare_python, without=frozenset({"transformer-engine"})))
    assert inspect(bare_python, MODULES).modules["transformer_engine"] is None


def test_a_copy_that_no_metadata_tells_of_is_found_out(tree: Path, bare_python: Path) -> None:
    site = inspect(bare_python).purelib
    (site / "mxflux").mkdir()
    (site / "mxflux" / "__init__.py").write_text("")
    with pytest.raises(FatalError, match="something else is in effect") as caught:
        install(into(tree, bare_python))
    assert caught.value.details == (
        f"mxflux comes from {site}/mxflux/__init__.py, not from {tree / 'overlay'}",
    )


def test_pythonpath_that_hides_the_tree_is_found_out(
    tree: Path, bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(FatalError, match="something else is in effect") as caught:
        install(into(tree, bare_python))
    assert "PYTHONPATH" in str(caught.value.hint)


def test_the_library_folder_of_the_compiled_core_hides_nothing(
    tree: Path, bare_python: Path
) -> None:
    put(
        bare_python,
        "transformer-engine-cu13",
        "2.18.0",
        {"transformer_engine/wheel_lib/libtransformer_engine.so": ""},
    )
    result = install(into(tree, bare_python, public_version=True))
    assert result.compiled == ("transformer-engine-cu13 2.18.0",)
    assert result.notes == ()


def test_libraries_that_no_package_owns_count_as_compiled_parts(
    tree: Path, bare_python: Path
) -> None:
    library = inspect(bare_python).purelib / "transformer_engine_torch.cpython-312.so"
    library.touch()
    assert install(into(tree, bare_python)).compiled == (str(library),)


def test_versions_that_transformer_engine_would_refuse_are_refused(
    tree: Path, bare_python: Path
) -> None:
    put(bare_python, "transformer-engine-cu13", "2.18.0")
    with pytest.raises(FatalError, match="TransformerEngine's own check refuses") as caught:
        install(into(tree, bare_python))
    assert "core v2.18.0" in caught.value.details[0]
    assert "--public-version" in str(caught.value.hint)


def test_a_python_that_upstream_excludes(tmp_path: Path, bare_python: Path) -> None:
    tree = make_tree(tmp_path / "tree", extra={"overlay/pyproject.toml": PYPROJECT_OF_THE_FUTURE})
    with pytest.raises(FatalError) as caught:
        install(into(tree, bare_python))
    assert caught.value.details == ("mxflux 0.1.0 requires Python >=3.99",)
    assert "--ignore-requires-python" in str(caught.value.hint)
    result = install(into(tree, bare_python, ignore_requires_python=True))
    assert "mxflux" in result.versions


PYPROJECT_OF_THE_FUTURE = '[project]\nname = "mxflux"\nversion = "0"\nrequires-python = ">=3.99"\n'


def test_missing_packages_are_listed(tree: Path, env_with: Path) -> None:
    put(env_with, "torch", "2.8.0+rocm", {"torch/__init__.py": ""})
    with pytest.raises(FatalError, match="lacks packages") as caught:
        install(InstallRequest(tree, python=env_with))
    assert caught.value.details == ("six",)
    assert "--with-deps" in str(caught.value.hint)


def test_torch_is_never_installed(tree: Path, env_with: Path) -> None:
    with pytest.raises(FatalError, match="lacks packages") as caught:
        install(InstallRequest(tree, python=env_with, dependencies=Policy.INSTALL))
    assert caught.value.details == ("torch==2.13.0", "six")
    assert "mxtree never does" in str(caught.value.hint)


def test_another_torch_than_the_listed_one_will_do(tree: Path, env_with: Path) -> None:
    put(env_with, "torch", "2.8.0+rocm", {"torch/__init__.py": "", "six.py": ""})
    install(InstallRequest(tree, python=env_with))
    assert inspect(env_with).distributions["torch"].version == "2.8.0+rocm"


def test_a_python_of_the_operating_system(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_BREAK_SYSTEM_PACKAGES", raising=False)
    facts = {"version": [3, 12, 1], "purelib": "/usr/lib/python3", "externally_managed": True}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps(facts | {"modules": {}, "distributions": []}))
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec cat '{answer}'\n")
    python.chmod(0o755)
    with pytest.raises(FatalError, match="belongs to the operating system") as caught:
        install(into(tree, python))
    assert "PIP_BREAK_SYSTEM_PACKAGES=1" in str(caught.value.hint)


def test_what_is_no_tree(tmp_path: Path, bare_python: Path) -> None:
    with pytest.raises(FatalError, match="is not a tree"):
        install(into(tmp_path, bare_python))


@pytest.mark.usefixtures("no_requirements")
def test_a_new_environment_beside_the_tree(tree: Path) -> None:
    result = install(InstallRequest(tree))
    assert result.python == tree.with_name("default.venv") / "bin" / "python"
    assert verify(tree) == []
