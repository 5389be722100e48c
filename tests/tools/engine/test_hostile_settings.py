# SPDX-License-Identifier: Apache-2.0
"""The user's git settings, one by one: same commits, same exported bytes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from small_repo import SmallRepo, edited

from mxtree.engine import Fit
from mxtree.git import git
from mxtree.series import Patch
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from pathlib import Path

#: Key and value; {folder} is a folder with failing hooks, a failing program and bad attributes.
SETTINGS = (
    ("commit.gpgSign", "true"),
    ("gpg.program", "{folder}/fail"),
    ("diff.noprefix", "true"),
    ("diff.mnemonicPrefix", "true"),
    ("diff.srcPrefix", "x/"),
    ("diff.relative", "true"),
    ("diff.external", "{folder}/fail"),
    ("diff.context", "1"),
    ("diff.interHunkContext", "9"),
    ("diff.renames", "copies"),
    ("diff.algorithm", "patience"),
    ("diff.orderFile", "{folder}/order"),
    ("core.autocrlf", "true"),
    ("core.eol", "crlf"),
    ("core.hooksPath", "{folder}/hooks"),
    ("core.attributesFile", "{folder}/attributes"),
    ("core.quotePath", "false"),
    ("core.abbrev", "5"),
    ("core.fsmonitor", "{folder}/fail"),
    ("format.attach", "true"),
    ("format.signOff", "true"),
    ("format.subjectPrefix", "RFC"),
    ("format.useAutoBase", "true"),
    ("format.headers", "X-Header: y"),
    ("format.pretty", "oneline"),
    ("format.notes", "true"),
    ("am.threeWay", "true"),
    ("am.keepcr", "false"),
    ("apply.whitespace", "fix"),
    ("apply.ignoreWhitespace", "change"),
    ("mailinfo.scissors", "true"),
    ("i18n.commitEncoding", "latin1"),
    ("i18n.logOutputEncoding", "latin1"),
    ("rerere.enabled", "true"),
    ("user.useConfigOnly", "true"),
    ("author.name", "Mallory"),
    ("log.showSignature", "true"),
    ("fastimport.unpackLimit", "1"),
)

MESSAGE = "[PERF] caf\u00e9\n\nDescription: why\n-- >8 --\n\ntext\n"
STEPS = (
    {b"core/numbers.py": edited((5, b"five \r\n")), b"caf\xc3\xa9 x": b"1\r\n2"},
    {b"core/data.bin": bytes(range(255, -1, -1)) * 4, b"core/numbers.py": edited((30, b"30\n"))},
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], tuple[bytes, ...]]:
    return _run(SmallRepo(tmp_path_factory.mktemp("calm") / "repo"))


def _run(small: SmallRepo) -> tuple[list[str], tuple[bytes, ...]]:
    """Apply a patch in memory and one through git; return the commits and their export."""
    first, second = small.patches(*STEPS, messages=(MESSAGE, "Second\n"))
    head, _, body = second.raw.partition(b"\n\n")
    mail = b"%s\nContent-Transfer-Encoding: base64\n\n%s" % (head, base64.encodebytes(body))
    applied = small.apply([first, Patch(second.path, second.id, second.name, mail)])
    assert [item.fit for item in applied] == [Fit.EXACT, Fit.GIT]
    commits = [item.commit for item in applied]
    return commits, format_range(small.path, small.base, commits[-1])


@pytest.mark.parametrize(("key", "value"), SETTINGS, ids=[key for key, _ in SETTINGS])
def test_a_setting_of_the_user_changes_nothing(
    expected: tuple[list[str], tuple[bytes, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    value: str,
) -> None:
    small = SmallRepo(tmp_path / "repo")
    _make_traps(tmp_path)
    value = value.format(folder=tmp_path)
    config = tmp_path / ".gitconfig"
    git("config", "--file", config, key, value)
    git("config", key, value, cwd=small.path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert _run(small) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_DIR", "/nonexistent"),
        ("GIT_INDEX_FILE", "/nonexistent/index"),
        ("GIT_AUTHOR_NAME", "Mallory"),
        ("GIT_COMMITTER_DATE", "1 +0000"),
        ("GIT_DIFF_OPTS", "-u1"),
        ("GIT_EXTERNAL_DIFF", "/nonexistent"),
        ("GIT_CONFIG_PARAMETERS", "'diff.noprefix'='true'"),
        ("GIT_TRACE", "1"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("TZ", "Asia/Kolkata"),
    ],
)
def test_a_variable_of_the_user_changes_nothing(
    expected: tuple[list[str], tuple[bytes, ...]],
    small: SmallRepo,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert _run(small) == expected


def _make_traps(folder: Path) -> None:
    hooks = folder / "hooks"
    hooks.mkdir()
    scripts = [hooks / name for name in ("applypatch-msg", "pre-applypatch", "commit-msg")]
    for script in (folder / "fail", *scripts):
        script.write_text("#!/bin/sh\nexit 1\n")
        script.chmod(0o755)
    (folder / "attributes").write_text("* -diff text eol=crlf ident\n")
    (folder / "git").mkdir()
    (folder / "git" / "attributes").write_text("* -diff text eol=crlf ident\n")
    (folder / "order").write_text("core/numbers.py\n")
