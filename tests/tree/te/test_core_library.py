# SPDX-License-Identifier: Apache-2.0
"""Patch 0010: a tree's version, a local one, runs beside the compiled packages of its release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import transformer_engine

#: In a process of its own: this one has replaced the loader of the extension by its stub.
ASK = """
import json, sys, warnings
warnings.simplefilter("ignore")
try:
    import transformer_engine
except AssertionError:
    pass  # of the extension; the module with the checks is there
common = sys.modules["transformer_engine.common"]
def outcome(check, *args):
    try:
        check(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"
print(json.dumps([
    outcome(common.sanity_checks_for_pypi_installation),
    outcome(common.load_framework_extension, "torch"),
]))
"""


def install(folder: Path, package: str, version: str) -> None:
    """The metadata of a wheel, as pip leaves it behind."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    name = package.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/WHEEL,,\n")


def ask(folder: Path, **versions: str) -> list[str]:
    """What TE's two checks say to packages of these versions, the core's and the extension's."""
    for package, version in versions.items():
        install(folder, package, version)
    tree = Path(transformer_engine.__file__).parents[1]
    environment = {
        **os.environ,
        "NVTE_PROJECT_BUILDING": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), str(tree), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.control("package version mismatch")
def test_a_local_version_of_the_same_release_is_accepted(tmp_path: Path) -> None:
    both = {"transformer_engine_cu13": "2.18.0", "transformer_engine_torch": "2.18.0"}
    sanity, extension = ask(tmp_path, transformer_engine="2.18.0+mxtree.0a1b2c", **both)
    assert sanity == "accepted", sanity
    # Past the check of versions: there is no compiled extension to load.
    assert extension.startswith("FileNotFoundError: Could not find shared object"), extension


def test_another_release_is_refused_as_before(tmp_path: Path) -> None:
    both = {"transformer_engine_cu13": "2.17.1", "transformer_engine_torch": "2.18.0"}
    sanity, extension = ask(tmp_path, transformer_engine="2.18.0+mxtree.0a1b2c", **both)
    for said in (sanity, extension):
        assert said.startswith("AssertionError: Transformer Engine package version mismatch"), said
