# SPDX-License-Identifier: Apache-2.0
"""A project that pins a tiny upstream, an index that serves it, a cache of its own."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from local_index import LocalIndex, serve
from release_files import git_tree
from workshop import SDIST, WHEEL, Workshop

from mxtree.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a cache of its own and a pip that nobody has configured."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "MXTREE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    folder = tmp_path / "cache"
    monkeypatch.setenv("MXTREE_CACHE", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # a test that forgets its index must not find one
    return folder


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalIndex]:
    """Serve the tiny release on an index that pip is configured with."""
    with serve() as local:
        local.add("tiny", "tiny-1.0.tar.gz", SDIST)
        local.add("round", "round-1.0-py3-none-any.whl", WHEEL)
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", local.url)
        monkeypatch.setenv("PIP_RETRIES", "1")
        yield local


@pytest.fixture(scope="session")
def pins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return the right pins of the two tiny upstreams; the trees are what git makes of them."""
    import tarfile
    import zipfile

    sdist, wheel = tmp_path_factory.mktemp("sdist"), tmp_path_factory.mktemp("wheel")
    (sdist / "f").write_bytes(SDIST)
    (wheel / "f").write_bytes(WHEEL)
    with tarfile.open(sdist / "f") as archive:
        archive.extractall(sdist, filter="fully_trusted")
    with zipfile.ZipFile(wheel / "f") as zipped:
        zipped.extractall(wheel / "all")
    return {
        "tiny": {
            "file": "tiny-1.0.tar.gz",
            "sha256": hashlib.sha256(SDIST).hexdigest(),
            "tree": git_tree(sdist / "tiny-1.0"),
        },
        "round": {
            "file": "round-1.0-py3-none-any.whl",
            "sha256": hashlib.sha256(WHEEL).hexdigest(),
            "tree": git_tree(wheel / "all"),
        },
    }


@pytest.fixture
def workshop(tmp_path: Path, pins: dict[str, dict[str, str]]) -> Workshop:
    """Return a project that pins both tiny upstreams."""
    shop = Workshop(tmp_path / "project", {name: dict(pin) for name, pin in pins.items()})
    shop.write()
    return shop


@pytest.fixture
def mxtree(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Return the command line, run in this process: arguments in, stdout and stderr out."""
    monkeypatch.setenv("MXTREE_PROJECT", str(workshop.root))

    def call(*args: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["mxtree", *args])
        capfd.readouterr()
        assert main() == code
        return capfd.readouterr()

    return call
