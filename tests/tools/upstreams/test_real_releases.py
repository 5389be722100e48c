# SPDX-License-Identifier: Apache-2.0
"""The pinned releases themselves, from the index that pip is configured with."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from mxtree.project import Project
from mxtree.upstreams import Source, ensure_imported, load_upstreams

CHECKOUT = Path(__file__).parents[3]
PIP_SETTINGS = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}

#: Version, import commit and tree of each default release: the same on every machine, for ever.
DEFAULTS = {
    "megatron-lm": (
        "0.18.2",
        "3580f85a9de0599cc8f2fea01513547d5f086a70",
        "89d00facaa953c5c6b9d346360179a85a4d79bbf",
    ),
    "transformer-engine": (
        "2.18.0",
        "31809713aeeea3326d11a150702b5eea74bba338",
        "14b0b5d909580ce6b9e4af80172ab9386e0242ab",
    ),
}


@pytest.mark.network
def test_the_default_releases(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch both cold, then warm and offline; blobs are those of upstream's public tags."""
    for name in ("PIP_CONFIG_FILE", "PIP_NO_INDEX"):
        monkeypatch.delenv(name)
    for name, value in PIP_SETTINGS.items():
        monkeypatch.setenv(name, value)
    upstreams = load_upstreams(Project(CHECKOUT))
    for name, (version, commit, tree) in DEFAULTS.items():
        upstream = upstreams.get(name)
        assert upstream.default == version
        found = ensure_imported(Project(CHECKOUT), upstream, version, Source("index"))
        assert (found.commit, found.tree) == (commit, tree)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    started = time.perf_counter()
    for name, (version, commit, _) in DEFAULTS.items():
        found = ensure_imported(Project(CHECKOUT), upstreams.get(name), version, Source("index"))
        assert (found.cached, found.commit) == (True, commit)
    # 17 ms on an idle machine; the bound leaves room for a busy one.
    assert time.perf_counter() - started < 0.5
    assert blob(cache, "megatron-lm", "core_v0.18.2:megatron/core/package_info.py") == MEGATRON_BLOB
    assert blob(cache, "transformer-engine", "v2.18:transformer_engine/__init__.py") == TE_BLOB


MEGATRON_BLOB = "b7be5832de3f2f20d3ad322e890cd14b0b1a9c53"
TE_BLOB = "480a2e9a06d7abdd55fe6999e96a612dfbc1addc"


def blob(cache: Path, name: str, path: str) -> str:
    command = ["git", "-C", str(cache / "upstreams" / f"{name}.git"), "rev-parse", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
