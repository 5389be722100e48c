# SPDX-License-Identifier: Apache-2.0
"""`mxtree drift` as a user runs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mxtree.cli.drift import drift
from mxtree.drift.model import SeriesDrift
from mxtree.errors import FatalError

if TYPE_CHECKING:
    from .conftest import Lab

BEFORE = "def count():\n    one = 1\n    return one\n\n\ndef gone():\n    return 1\n"
UNKNOWN = "neither the base nor the patched tree has it; correct the Changes: field"


@pytest.fixture
def based(lab: Lab) -> Lab:
    lab.release("1.0", {"m.py": BEFORE, "k.cu": "a\n"})
    lab.series(
        ("m.count, m.typo", {"m.py": BEFORE.replace("return one", "return 1")}),
        ("m.gone", {"m.py": BEFORE.replace("return one", "return 1").replace("1\n", "2\n")}),
        ("k.cu, new.cu", {"k.cu": "b\n", "new.cu": "n\n"}),
    )
    lab.release("2.0", {"m.py": BEFORE.replace("one = 1", "one = 2").partition("\n\n\n")[0] + "\n"})
    return lab


def test_the_screen(based: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    drift()
    assert capsys.readouterr().out.splitlines() == [
        "thing 1.0: 2.0",
        "0001-Patch-1.patch (Patch 1)",
        "  m.count: changed in 2.0 (+1 -1)",
        f"  m.typo: unknown; {UNKNOWN}",
        "0002-Patch-2.patch (Patch 2)",
        "  m.gone: vanished in 2.0 (+0 -2)",
        "0003-Patch-3.patch (Patch 3)",
        "  k.cu: unchanged",
        "  new.cu: ours; unchanged",
        "what will hurt next:",
        "  high     0002-Patch-2.patch: m.gone vanished in 2.0 (+0 -2)",
        "  changed  0001-Patch-1.patch: m.count changed in 2.0 (+1 -1)",
        "  none     0003-Patch-3.patch",
        "next: mxtree rebase thing --dry-run --onto VERSION",
    ]


def test_json_is_the_model(based: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    drift(["thing"], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert [patch.pop("risk") for patch in found["patches"]] == ["changed", "high", "none"]
    assert SeriesDrift.model_validate(found) == based.drift()


def test_commits_are_named(based: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    drift(["thing"], source=f"git:{based.upstream}")
    out = capsys.readouterr().out
    assert "thing 1.0: 1.0..HEAD (1 commits)\n" in out
    assert "  m.gone: vanished in " in out
    assert "2023-11-14 Release 2.0 (+0 -2)" in out


def test_an_upstream_without_a_series_is_said_when_all_are_asked_for(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.release("1.0", {"a": "a\n"})
    drift()
    assert "no series in " in capsys.readouterr().out
    with pytest.raises(FatalError, match="thing"):
        drift(["thing"])


def test_an_unknown_upstream_is_an_error(based: Lab) -> None:
    with pytest.raises(FatalError, match="no upstream 'think'"):
        drift(["think"])


def test_what_is_for_one_upstream_is_refused_for_several(based: Lab) -> None:
    pins = based.project.upstreams_file
    text = pins.read_text()
    other = text.partition("schema = 1\n")[2].replace("upstream.thing", "upstream.b")
    pins.write_text(text + other)
    with pytest.raises(FatalError, match="are for one upstream"):
        drift(onto="2.0")
    with pytest.raises(FatalError, match="are for one upstream"):
        drift(source=f"git:{based.upstream}")


def test_hidden_characters_in_a_title_are_spelled_out(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.release("1.0", {"a": "a\n"})
    lab.series(("a", {"a": "b\n"}))
    (path,) = lab.project.series_dir("thing", "1.0").glob("*.patch")
    path.write_bytes(path.read_bytes().replace(b"Patch 1", b"[red]\x1b[31m"))
    lab.release("2.0", {"a": "c\n"})
    drift()
    assert "([red]<U+001B>[31m)" in capsys.readouterr().out
