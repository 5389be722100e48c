# SPDX-License-Identifier: Apache-2.0
"""pip's configuration as pip itself reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mxtree.errors import FatalError
from mxtree.upstreams.pip_settings import PipSettings, local_path, read_pip_settings

if TYPE_CHECKING:
    from pathlib import Path

EVERYTHING = """\
[global]
index-url = file:///nowhere/one/simple
extra-index-url =
    file:///nowhere/two/simple
    file:///nowhere/three/simple
timeout = 3
cert = /global.pem
[install]
extra_index_url = file:///nowhere/four/simple
find-links = /nowhere/wheels file:///nowhere/more
[download]
index-url = file:///nowhere/never/simple
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PIP_CONFIG_FILE", "PIP_NO_INDEX"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg-home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path / 'xdg-one'}{os.pathsep}{tmp_path / 'two'}")
    return tmp_path


def put(home: Path, folder: str, text: str) -> Path:
    path = home / folder / "pip.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def check_against_pip() -> PipSettings:
    """Return the settings after `pip install` has said that it looks in the same places."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "no-such-thing"]
    said = subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()
    found = read_pip_settings()
    assert _places(said, "Looking in indexes: ") == (found.index_url, *found.extra_index_urls)
    assert _places(said, "Looking in links: ") == found.find_links
    return found


def _places(said: list[str], start: str) -> tuple[str, ...]:
    lines = [line.removeprefix(start) for line in said if line.startswith(start)]
    return tuple(lines[0].split(", ")) if lines else ()


def test_sections_and_kinds_of_values(home: Path) -> None:
    put(home, "xdg-home/pip", EVERYTHING)
    found = check_against_pip()
    assert found.index_url == "file:///nowhere/one/simple"
    assert found.extra_index_urls == ("file:///nowhere/four/simple",)
    assert found.find_links == ("/nowhere/wheels", "file:///nowhere/more")
    assert found.timeout_s == 3.0
    assert found.cert == "/global.pem"
    assert found.retries is None
    assert not found.no_index


def test_several_values_are_split_at_white_space(home: Path) -> None:
    put(home, "xdg-home/pip", EVERYTHING.replace("extra_index_url", "something-else"))
    expected = ("file:///nowhere/two/simple", "file:///nowhere/three/simple")
    assert check_against_pip().extra_index_urls == expected


def test_later_files_win_as_they_do_for_pip(home: Path) -> None:
    for folder in ("xdg-one/pip", "two/pip", ".pip", "xdg-home/pip"):
        mine = f"file:///nowhere/{folder}/simple"
        put(home, folder, f"[global]\nindex-url = {mine}\n")
        assert read_pip_settings().index_url == mine
        if folder in {"two/pip", "xdg-home/pip"}:
            check_against_pip()


def test_a_named_file_replaces_the_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, "xdg-home/pip", EVERYTHING + "proxy = http://p:1\n")
    named = put(home, "named", "[global]\nindex-url = file:///nowhere/named\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(named))
    found = check_against_pip()
    assert (found.index_url, found.proxy) == ("file:///nowhere/named", None)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(home / "absent"))
    assert check_against_pip().index_url == "file:///nowhere/one/simple"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert read_pip_settings() == PipSettings()


def test_variables_win_and_empty_ones_do_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, "xdg-home/pip", EVERYTHING)
    monkeypatch.setenv("PIP_INDEX_URL", "file:///nowhere/variable")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("PIP_RETRIES", "2")
    found = check_against_pip()
    assert found.index_url == "file:///nowhere/variable"
    assert found.extra_index_urls == ("file:///nowhere/four/simple",)
    assert found.retries == 2
    assert found.timeout_s == 7.0
    monkeypatch.setenv("PIP_NO_INDEX", "on")
    assert read_pip_settings().no_index


def test_what_pip_could_not_read_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(home, "xdg-home/pip", "index-url = https://one.invalid\n")
    with pytest.raises(FatalError, match=f"pip's configuration {path} cannot be read"):
        read_pip_settings()
    path.write_text("[global]\ntimeout = soon\n")
    with pytest.raises(FatalError, match="timeout is not a number: 'soon'"):
        read_pip_settings()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("file:///srv/a%20b/simple", "/srv/a b/simple"),
        ("/srv/simple", "/srv/simple"),
        ("https://one.invalid/simple", None),
    ],
)
def test_local_places(place: str, path: str | None) -> None:
    found = local_path(place)
    assert (None if found is None else str(found)) == path
