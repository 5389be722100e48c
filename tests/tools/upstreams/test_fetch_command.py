# SPDX-License-Identifier: Apache-2.0
"""`mxtree fetch` as a user meets it: what it prints, how it exits."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from processes import TOOLS
from workshop import SDIST, WHEEL

from mxtree.errors import FatalError
from mxtree.upstreams.fetch import select
from mxtree.upstreams.load import load_upstreams, parse_upstreams
from mxtree.upstreams.progress import size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local_index import LocalIndex
    from workshop import Workshop

    Command = Callable[..., tuple[str, str]]


def test_without_arguments_the_defaults_are_fetched(
    mxtree: Command, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = mxtree("fetch")
    first, second = out.splitlines()
    assert first.startswith("tiny 1.0: fetched from index, 0.2 MB downloaded; 7 files, 0.2 MB, co")
    assert second.startswith("round 1.0: fetched from index, ")
    assert err.splitlines() == [
        f"fetching tiny-1.0.tar.gz ({size(len(SDIST))})",
        f"fetching round-1.0-py3-none-any.whl ({size(len(WHEEL))})",
    ]
    asked = len(index.requests)
    monkeypatch.setenv("MXTREE_OFFLINE", "1")
    out, err = mxtree("fetch", "round")
    assert out.startswith("round 1.0: was in the cache; 5 files, ")
    assert err == ""
    assert len(index.requests) == asked


def test_json_has_everything_and_no_path(
    mxtree: Command, workshop: Workshop, index: LocalIndex
) -> None:
    (found,) = json.loads(mxtree("fetch", "tiny@1.0", "--json")[0])
    pin = workshop.pins["tiny"]
    assert found == {
        "upstream": "tiny",
        "version": "1.0",
        "tag": "v1.0",
        "source": {"kind": "index", "file": pin["file"], "sha256": pin["sha256"]},
        "commit": found["commit"],
        "tree": pin["tree"],
        "cached": False,
        "downloaded": len(SDIST),
        "files": 7,
        "bytes": found["bytes"],
    }
    assert str(workshop.root.parent) not in str(found)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["tinny"], 2, "there is no upstream 'tinny'"),
        (["tiny@1.1"], 2, "tiny 1.1 is not pinned in patches/upstreams.toml"),
        (["tiny@"], 2, "tiny  is not pinned"),
        (["--source", "svn:x"], 2, "is not a source"),
        (["--source", "tinny=index"], 2, "there is no upstream 'tinny'"),
        (["--pin", "tiny"], 2, "must be UPSTREAM@VERSION"),
        (["--pin", "tiny@1.0", "round"], 2, "takes no other upstream"),
        (["tiny"], 4, "could not be fetched"),
    ],
)
def test_bad_input_is_one_screen_and_an_exit_code(
    mxtree: Command, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, said: str
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    out, err = mxtree("fetch", *args, code=code)
    assert out == ""
    assert said in " ".join(err.replace("│", " ").split()) or said in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 24


def test_one_folder_is_not_taken_for_two_upstreams(
    mxtree: Command, index: LocalIndex, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.py").write_text("a = 1\n")
    _, err = mxtree("fetch", "--source", f"dir:{folder}", code=2)
    assert "is given for tiny and round" in err
    assert f"--source tiny=dir:{folder}" in err
    (found,) = json.loads(mxtree("fetch", "tiny", "--source", f"dir:{folder}", "--json")[0])
    assert found["source"] == {"kind": "dir", "tree": found["tree"]}
    out, _ = mxtree("fetch", "--source", f"round=dir:{folder}", "--json")
    first, second = json.loads(out)
    assert (first["source"]["kind"], second["source"]["kind"]) == ("index", "dir")


def test_all_means_every_pinned_release_once(workshop: Workshop) -> None:
    path = workshop.project.upstreams_file
    text = path.read_text()
    pin = workshop.pins["round"]
    text += '\n[upstream.round.release."0.9"]\nfile = "round-0.9-py3-none-any.whl"\n'
    text += f'sha256 = "{pin["sha256"]}"\ntree = "{pin["tree"]}"\n'
    upstreams = parse_upstreams(text, path)

    def names(*wanted: str) -> list[str]:
        return [f"{upstream.name} {version}" for upstream, version in select(upstreams, wanted)]

    assert names() == ["tiny 1.0", "round 1.0"]
    assert names("round@all") == ["round 1.0", "round 0.9"]
    assert names("round@0.9", "round", "round@all") == ["round 0.9", "round 1.0"]
    with pytest.raises(FatalError):
        select(load_upstreams(workshop.project), ["round", "round@0.9"])


def test_a_terminal_gets_a_bar(workshop: Workshop, index: LocalIndex) -> None:
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "mxtree", "fetch", "tiny"]
    env = {"PYTHONPATH": str(TOOLS), **os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, cwd=workshop.root, env=env, stdout=subprocess.PIPE, stderr=terminal
    ) as process:
        os.close(terminal)
        out, _ = process.communicate(timeout=60)
    shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert process.returncode == 0, shown
    assert out.startswith(b"tiny 1.0: fetched from index")
    assert "fetching tiny-1.0.tar.gz" in shown
    assert "━" in shown
