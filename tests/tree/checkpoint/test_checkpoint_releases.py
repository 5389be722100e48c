# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one megatron-core release in another: newer ones resume, older ones refuse.

``MXTREE_OTHER_TREES``: built trees of other releases, separated like PATH.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import origin

from mxflux.checkpoint.training_record import release
from mxflux.checkpoint.verify import verify

FORMATS = ("dp_reshardable", "fully_reshardable")
OTHERS = [Path(p) for p in os.environ.get("MXTREE_OTHER_TREES", "").split(os.pathsep) if p]

pytestmark = pytest.mark.skipif(
    not OTHERS, reason="MXTREE_OTHER_TREES names no trees of other megatron-core releases"
)


def run_in(tree: Path | None, function: str, folder: Path, root: Path) -> dict[str, Any]:
    """What ``checkpoint_ranks:function`` returns with the megatron-core of a tree (None: ours)."""
    folder.mkdir()
    own = origin.locate("megatron.core")
    assert own is not None
    ours = own.parents[2]
    paths = [str(tree / "megatron-lm") if tree and Path(p) == ours else p for p in sys.path if p]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RANK": "0"}
    if tree is not None:
        environment.pop("MXTREE_TREE", None)
        assert str(tree / "megatron-lm") in paths, (ours, paths)
    arguments = [f"checkpoint_ranks:{function}", str(folder), json.dumps({"root": str(root)})]
    done = subprocess.run(
        [sys.executable, "-m", "support.ranks", *arguments],
        env={**environment, "WORLD_SIZE": "1", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = pickle.loads((folder / "0").read_bytes())
    return result


@pytest.mark.parametrize("other", OTHERS, ids=lambda tree: tree.name)
@pytest.mark.parametrize("written_by", ["them", "us"])
def test_newer_releases_resume_and_older_ones_say_why_not(
    other: Path, written_by: str, tmp_path: Path
) -> None:
    writer, reader = (other, None) if written_by == "them" else (None, other)
    root = tmp_path / "runs"
    written = run_in(writer, "write_for_others", tmp_path / "writer", root)
    for kind in FORMATS:
        verify(root / kind)  # any release, without Megatron
    read = run_in(reader, "read_of_others", tmp_path / "reader", root)
    older, newer = written["release"], read["release"]
    assert older != newer
    for kind in FORMATS:
        if release(older) < release(newer):
            assert read[kind] == "no error"
            assert read[f"{kind} losses"] == written["continued"]
        else:
            assert f"written by megatron-core {older}, this is {newer}" in read[kind]
            assert "loads in the release that wrote it or a newer one" in read[kind]
