# SPDX-License-Identifier: Apache-2.0
"""`patches/upstreams.toml`: everything wrong in it is said at once, with line and key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import FatalError
from mxtree.project import Project
from mxtree.upstreams import load_upstreams
from mxtree.upstreams.load import parse_upstreams

if TYPE_CHECKING:
    from workshop import Workshop

CHECKOUT = Path(__file__).parents[3]

GOOD = """\
schema = 1

[upstream.some-thing]
package = "some-thing"
packaging = "sdist"
default = "1.2.0"
repository = "https://example.invalid/some-thing.git"
tag = "release_{version}"

[upstream.some-thing.release."1.2.0"]
file = "some_thing-1.2.0.tar.gz"
sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
tree = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

[upstream.some-thing.release."1.3.0"]
file = "some_thing-1.3.0.tar.gz"
sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
tree = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
commit = "cccccccccccccccccccccccccccccccccccccccc"
tag = "v1.3"
"""
FILE = Path("upstreams.toml")


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(FatalError) as caught:
        parse_upstreams(text, FILE)
    assert "upstreams.toml" in caught.value.message
    return caught.value.details


def test_tag_follows_the_pattern_unless_the_release_names_one() -> None:
    upstream = parse_upstreams(GOOD, FILE).get("some-thing")
    assert upstream.release("1.2.0").tag == "release_1.2.0"
    assert upstream.release("1.2.0").commit is None
    assert upstream.release("1.3.0").tag == "v1.3"
    assert upstream.release("1.3.0").commit == "c" * 40
    assert upstream.default == "1.2.0"


def test_every_problem_is_listed_with_its_line() -> None:
    text = (
        GOOD.replace("schema = 1", "schema = 2")
        .replace('packaging = "sdist"', 'packaging = "egg"')
        .replace("tree = ", "tre = ", 1)
        .replace('"v1.3"', '"../v1.3"')
    )
    found = problems(text)
    assert len(found) == 5
    assert any(line.startswith("line 1: schema: ") for line in found)
    assert any(line.startswith("line 5: upstream.some-thing.packaging: ") for line in found)
    unknown = 'line 13: upstream.some-thing.release."1.2.0".tre: unknown key; did you mean tree?'
    assert unknown in found
    assert 'line 10: upstream.some-thing.release."1.2.0".tree: missing' in found
    assert any("'../v1.3' does not match" in line and "line 20" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('default = "1.2.0"', 'default = "1.2.1"', "line 6: upstream.some-thing.default: '1.2.1'"),
        ("some_thing-1.2.0.tar.gz", "some_thing-1.2.tar.gz", "line 11: upstream.some-thing.rel"),
        ("some_thing-1.2.0.tar.gz", "../1.2.0.tar.gz", "line 11: upstream.some-thing.release"),
        ("some_thing-1.2.0.tar.gz", "some_thing-1.2.0.whl", "line 11: upstream.some-thing.rele"),
        ('sha256 = "aaaa', 'sha256 = "AAAA', "line 12: upstream.some-thing.release"),
        ('default = "1.2.0"', "default = 1.2", "line 6: upstream.some-thing.default"),
        ("_{version}", "_{versio}", "line 8: upstream.some-thing.tag"),
        ("schema = 1\n", "", "schema: missing"),
        ("schema = 1\n", "schema = 1\nother = 1\n", "line 2: other: unknown key"),
        ("https://example", "--upload-pack=x", "line 7: upstream.some-thing.repository"),
    ],
)
def test_bad_values_are_refused(old: str, new: str, line: str) -> None:
    assert GOOD.count(old) >= 1
    found = problems(GOOD.replace(old, new, 1))
    assert any(problem.startswith(line) for problem in found), found


def test_bad_names_are_refused() -> None:
    assert problems(GOOD.replace("some-thing]", '"../x"]'))
    assert problems(GOOD.replace('"1.3.0"]', '"../1.3.0"]'))


@pytest.mark.parametrize(
    "text", [GOOD + 'tag = "again"\n', GOOD + "[upstream", "\x00", GOOD + "[upstream.some-thing]\n"]
)
def test_what_is_not_toml_is_said_with_its_place(text: str) -> None:
    with pytest.raises(FatalError, match=r"is not TOML: .*(line \d|end of document)"):
        parse_upstreams(text, FILE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"upstreams\.toml cannot be read"):
        load_upstreams(Project(tmp_path))
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "upstreams.toml").write_bytes(b"\xff")
    with pytest.raises(FatalError, match=r"upstreams\.toml is not UTF-8"):
        load_upstreams(Project(tmp_path))


def test_unknown_names_and_versions_name_the_nearest(workshop: Workshop) -> None:
    upstreams = load_upstreams(workshop.project)
    with pytest.raises(FatalError) as caught:
        upstreams.get("tinny")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean tiny")
    with pytest.raises(FatalError) as caught:
        parse_upstreams(GOOD, FILE).get("some-thing").release("1.2.1")
    assert caught.value.details == ("nearest: 1.2.0, 1.3.0",)
    assert caught.value.hint is not None
    assert "mxtree fetch --pin some-thing@1.2.1" in caught.value.hint


def test_the_pins_of_this_repository_are_sound() -> None:
    upstreams = load_upstreams(Project(CHECKOUT))
    assert upstreams.names == ("megatron-lm", "transformer-engine")
    assert upstreams.get("megatron-lm").default == "0.18.2"
    assert upstreams.get("transformer-engine").default == "2.18.0"
