# SPDX-License-Identifier: Apache-2.0
"""Building trees: content, identity on every machine, all or nothing, nothing lost."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from mxtree import locks
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text
from mxtree.tree.build import BuildRequest, BuildResult, build
from mxtree.tree.verify import verify
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project

NAMES = ("megatron-lm", "transformer-engine")
GIT = {name: Source.parse("git") for name in NAMES}


def _build(
    project: Project, out: Path, *, patched: bool = True, discard: bool = False
) -> BuildResult:
    return build(project, BuildRequest(out, sources=GIT, patched=patched, discard=discard))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "trees" / "default"


def test_a_tree_is_the_patched_upstreams_and_the_overlay(project: Project, out: Path) -> None:
    manifest = _build(project, out).manifest
    for name in NAMES:
        assert (out / name / "code.py").read_text() == "def count():\n    return 1\n"
        record = manifest.upstreams[name]
        log = git("log", "--format=%H %s", cwd=out / name).decode().splitlines()
        assert log[0] == f"{record.patches[0].commit} Teach {name} to count"
        assert git_text("rev-parse", record.tag, cwd=out / name) == record.base_commit
        assert git("status", "--porcelain", cwd=out / name) == b""
    assert (out / "overlay" / "mxflux" / "__init__.py").is_file()
    assert verify(out) == []


def test_without_patches_the_upstreams_are_as_released(project: Project, out: Path) -> None:
    manifest = _build(project, out, patched=False).manifest
    assert (out / "megatron-lm" / "code.py").read_text() == "def count():\n    return None\n"
    assert not manifest.patched
    assert [record.patches for record in manifest.upstreams.values()] == [(), ()]


@pytest.mark.parametrize(
    "hostile",
    [
        {"umask": "077"},
        {"TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8"},
        {"config": "[commit]\ngpgSign = true\n[gpg]\nprogram = false\n"},
        {"config": "[diff]\nnoprefix = true\nexternal = false\ncontext = 0\n"},
        {"config": "[core]\nautocrlf = true\neol = crlf\n"},
        {"config": "[core]\nhooksPath = {hooks}\n"},
        {"config": "[user]\nuseConfigOnly = true\n"},
        {"GIT_DIR": "/nonexistent", "GIT_WORK_TREE": "/nonexistent", "GIT_INDEX_FILE": "/x"},
    ],
    ids=["umask", "locale", "gpgsign", "diff", "autocrlf", "hooks", "identity", "GIT_ variables"],
)
def test_same_inputs_same_digest_everywhere(
    project: Project,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hostile: dict[str, str],
) -> None:
    expected = _build(project, out).manifest
    shutil.rmtree(tmp_path / "cache")
    _make_hostile(tmp_path, monkeypatch, dict(hostile))
    old = os.umask(int(hostile.get("umask", "022"), 8))
    try:
        again = _build(project, tmp_path / "again").manifest
    finally:
        os.umask(old)
    assert again == expected
    assert verify(tmp_path / "again") == []


def _make_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: dict[str, str]) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("applypatch-msg", "pre-applypatch", "post-checkout", "reference-transaction"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    hostile.pop("umask", None)
    home = tmp_path / "home"
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").write_text("*.py -diff eol=crlf\n")
    (home / ".gitconfig").write_text(hostile.pop("config", "").format(hooks=hooks))
    monkeypatch.setenv("HOME", str(home))
    for key, value in hostile.items():
        monkeypatch.setenv(key, value)


def test_an_equal_tree_is_not_built_twice(project: Project, out: Path) -> None:
    first = _build(project, out)
    inode = out.stat().st_ino
    again = _build(project, out)
    assert (first.reused, again.reused) == (False, True)
    assert out.stat().st_ino == inode


def test_a_changed_overlay_gives_a_new_tree(project: Project, out: Path) -> None:
    first = _build(project, out).manifest
    (project.overlay / "mxflux" / "new.py").write_text("x = 1\n")
    second = _build(project, out).manifest
    assert second.digest != first.digest
    assert second.upstreams == first.upstreams
    assert (out / "overlay" / "mxflux" / "new.py").is_file()


def test_the_tree_survives_a_lost_cache_and_a_move(
    project: Project, out: Path, tmp_path: Path
) -> None:
    _build(project, out)
    shutil.rmtree(tmp_path / "cache")
    moved = out.rename(tmp_path / "moved")
    assert verify(moved) == []
    git("fsck", "--strict", cwd=moved / "megatron-lm")


def _edit_file(tree: Path) -> None:
    (tree / "megatron-lm" / "code.py").write_text("mine\n")


def _commit(tree: Path) -> None:
    _edit_file(tree)
    git("commit", "--quiet", "--all", "-m", "mine", cwd=tree / "megatron-lm")


def _add_overlay_file(tree: Path) -> None:
    (tree / "overlay" / "mine.py").write_text("mine\n")


@pytest.mark.parametrize("change", [_edit_file, _commit, _add_overlay_file])
def test_work_in_the_tree_is_never_overwritten(project: Project, out: Path, change) -> None:
    _build(project, out)
    change(out)
    before = {path: path.read_bytes() for path in out.rglob("*.py")}
    (project.overlay / "mxflux" / "new.py").write_text("x = 1\n")
    with pytest.raises(FatalError, match="changes that a build would overwrite") as caught:
        _build(project, out)
    assert caught.value.code == ExitCode.CHECK_FAILED
    assert "--discard" in (caught.value.hint or "")
    assert {path: path.read_bytes() for path in out.rglob("*.py")} == before
    _build(project, out, discard=True)
    assert verify(out) == []


def test_a_folder_that_is_no_tree_is_not_replaced(project: Project, out: Path) -> None:
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FatalError, match="is not a tree"):
        _build(project, out)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_a_patch_that_does_not_apply_leaves_the_old_tree(project: Project, out: Path) -> None:
    before = _build(project, out).manifest
    patch = next(project.series_dir("megatron-lm", "1.0").glob("*.patch"))
    patch.write_bytes(patch.read_bytes().replace(b"return None", b"return Nonsense"))
    with pytest.raises(FatalError) as caught:
        _build(project, out)
    assert caught.value.code == ExitCode.CONFLICT
    shown = "\n".join([caught.value.message, *caught.value.details])
    for expected in (patch.name, "code.py", "return Nonsense", "return None", "return 1"):
        assert expected in shown
    assert caught.value.hint
    assert _build(project, out.with_name("other"), patched=False).manifest.digest != before.digest
    assert verify(out) == []
    assert [path.name for path in out.parent.iterdir() if path.name.endswith(".stage")] == []


def test_a_version_without_a_series_is_refused(project: Project, out: Path) -> None:
    shutil.rmtree(project.series_dir("megatron-lm", "1.0"))
    with pytest.raises(FatalError, match=r"no patch series for megatron-lm 1\.0"):
        _build(project, out)
    assert not out.exists()


def test_a_tree_in_use_names_its_holder(
    project: Project, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "DEFAULT_TIMEOUT_S", 0.1)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.hold(out):
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    try:
        with pytest.raises(FatalError, match=rf"is in use by .*process {os.getpid()}"):
            _build(project, out)
    finally:
        done.set()
        holder.join()
