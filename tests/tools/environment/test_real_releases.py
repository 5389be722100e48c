# SPDX-License-Identifier: Apache-2.0
"""Wheels of the pinned releases themselves, unpatched, against upstream's own."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mxtree.environment.wheel import BuiltWheel, build_wheels
from mxtree.project import Project
from mxtree.tree.build import BuildRequest, build

CHECKOUT = Path(__file__).parents[3]

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of the pinned releases without patches."""
    out = tmp_path_factory.mktemp("stock") / "tree"
    build(Project(CHECKOUT), BuildRequest(out, patched=False))
    return out


@pytest.fixture(scope="module")
def built(stock: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BuiltWheel]:
    """Return the wheels of the stock tree."""
    wheels = build_wheels(stock, tmp_path_factory.mktemp("dist"))
    return {wheel.name: wheel for wheel in wheels}


def test_transformer_engine_has_the_files_of_upstreams_wheel(
    stock: Path, built: dict[str, BuiltWheel]
) -> None:
    info = next((stock / "transformer-engine").glob("*.dist-info"))
    rows = csv.reader((info / "RECORD").read_text().splitlines())
    upstream = {path: digest for path, digest, _ in rows if ".dist-info/" not in path}
    with zipfile.ZipFile(built["transformer-engine"].path) as archive:
        ours = {
            path: f"sha256={_record_hash(archive.read(path))}"
            for path in archive.namelist()
            if ".dist-info/" not in path
        }
    assert ours == upstream


def test_megatron_core_has_what_its_sdist_installs(
    stock: Path, built: dict[str, BuiltWheel]
) -> None:
    root = stock / "megatron-lm"
    with zipfile.ZipFile(built["megatron-core"].path) as archive:
        ours = {path for path in archive.namelist() if ".dist-info/" not in path}
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA")))
    files = {path.relative_to(root).as_posix() for path in (root / "megatron").rglob("*.*")}
    assert ours == {path for path in files if (root / path).is_file()}
    version = built["megatron-core"].version
    expected = (
        (root / "PKG-INFO")
        .read_bytes()
        .replace(b"\nVersion: 0.18.2\n", b"\nVersion: %s\n" % version.encode())
    )
    assert metadata == expected


def test_transformer_engines_recipes_import_and_tell_our_version(
    built: dict[str, BuiltWheel], tmp_path: Path
) -> None:
    with zipfile.ZipFile(built["transformer-engine"].path) as archive:
        archive.extractall(tmp_path)
    code = (
        "import transformer_engine.common.recipe as recipe, transformer_engine;"
        "print(recipe.__file__, transformer_engine.__version__)"
    )
    # Upstream's own way to import the Python part without the compiled one.
    env = os.environ | {"NVTE_PROJECT_BUILDING": "1", "PYTHONPATH": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    location, version = process.stdout.split()
    assert location == str(tmp_path / "transformer_engine" / "common" / "recipe" / "__init__.py")
    assert version == built["transformer-engine"].version


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
