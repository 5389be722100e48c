# SPDX-License-Identifier: Apache-2.0
"""The same release is the same commit, whatever the machine and its user are like."""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from processes import fetched
from workshop import Workshop

from mxtree.upstreams import Source, ensure_imported

if TYPE_CHECKING:
    from pathlib import Path

    from local_index import LocalIndex

HOSTILE = """\
[user]
\tname = Somebody Else
\temail = else@example.invalid
[commit]
\tgpgSign = true
\ttemplate = /nonexistent
[tag]
\tgpgSign = true
[core]
\tautocrlf = true
\thooksPath = {home}/hooks
\tattributesFile = {home}/attributes
\texcludesFile = {home}/attributes
\tfileMode = false
\tsymlinks = false
\tcompression = 0
\tsharedRepository = 0600
\tquotePath = false
[init]
\ttemplateDir = {home}/template
\tdefaultBranch = elsewhere
[fastimport]
\tunpackLimit = 1000
[i18n]
\tcommitEncoding = ISO-8859-1
[safe]
\tbareRepository = explicit
[pack]
\tcompression = 0
[extensions]
\tobjectFormat = sha256
[diff]
\tnoprefix = true
"""


def expected(workshop: Workshop) -> list[str]:
    """Return the ids of the two import commits, made by hand from what the reference documents."""
    ids = []
    for name, pin in workshop.pins.items():
        stamp = "mxtree <mxtree@mxtree.invalid> 1767225600 +0000"
        commit = (
            f"tree {pin['tree']}\nauthor {stamp}\ncommitter {stamp}\n\n"
            f"Import {name} 1.0\n\nTag: v1.0\nFile: {pin['file']}\nSHA256: {pin['sha256']}\n"
        ).encode()
        ids.append(hashlib.sha1(b"commit %d\0" % len(commit) + commit).hexdigest())
    return ids


def check(workshop: Workshop) -> None:
    """Import both upstreams and ask git, in plain surroundings, what they are."""
    source = Source("index")
    for name, commit in zip(workshop.pins, expected(workshop), strict=True):
        found = ensure_imported(workshop.project, workshop.upstream(name), "1.0", source)
        assert found.commit == commit
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        command = ["git", "-C", str(found.repo), "rev-parse", "v1.0", "v1.0^{tree}"]
        said = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        assert said.split() == [commit, workshop.pins[name]["tree"]]


def make_hostile_home(home: Path) -> None:
    hooks = (home / "hooks", home / "template" / "hooks")
    for folder in hooks:
        folder.mkdir(parents=True)
        for name in ("reference-transaction", "post-index-change", "pre-auto-gc"):
            (folder / name).write_text("#!/bin/sh\nexit 1\n")
            (folder / name).chmod(0o755)
    (home / "attributes").write_text("* text eol=crlf ident filter=none\n*.py -diff\n")
    (home / ".gitconfig").write_text(HOSTILE.format(home=home))
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").write_text("* text eol=crlf\n")


def test_a_hostile_configuration_of_git(
    workshop: Workshop, index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_hostile_home(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    check(workshop)


def test_hostile_variables_of_git(
    workshop: Workshop, index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_hostile_home(tmp_path)
    variables = {
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00",
        "GIT_COMMITTER_DATE": "2001-01-01T00:00:00",
        "GIT_AUTHOR_NAME": "Somebody Else",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_TEMPLATE_DIR": f"{tmp_path}/template",
        "GIT_CONFIG_GLOBAL": f"{tmp_path}/.gitconfig",
        "GIT_CONFIG_PARAMETERS": "'core.autocrlf=true'",
        "GIT_NAMESPACE": "elsewhere",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check(workshop)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask(workshop: Workshop, index: LocalIndex, umask: int) -> None:
    old = os.umask(umask)
    try:
        check(workshop)
    finally:
        os.umask(old)


@pytest.mark.parametrize(
    "env",
    [
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"},
        {"LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "de", "PYTHONUTF8": "0", "PYTHONHASHSEED": "7"},
    ],
    ids=["time zone", "locale"],
)
def test_time_zone_locale_and_working_directory(
    workshop: Workshop, index: LocalIndex, tmp_path: Path, env: dict[str, str]
) -> None:
    elsewhere = Workshop(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    found = fetched(elsewhere, env={"MXTREE_PROJECT": str(workshop.root), **env})
    assert [item["commit"] for item in found] == expected(workshop)
    check(workshop)
