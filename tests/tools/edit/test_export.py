# SPDX-License-Identifier: Apache-2.0
"""Commits of a tree become the series: nothing lost, nothing rewritten without need."""

from __future__ import annotations

import resource
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from mxtree.edit import plan as plans
from mxtree.edit.export import changes, plan_exports, write_exports
from mxtree.edit.fresh import tree_to_export
from mxtree.edit.plan import listing
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text
from mxtree.tree.build import BuildRequest, build
from mxtree.tree.verify import verify
from mxtree.upstreams import Source

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project

NAME = "megatron-lm"


def _series(project: Project) -> dict[str, bytes]:
    folder = project.series_dir(NAME, "1.0")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _commit(tree: Path, files: dict[str, str], message: str, *options: str) -> None:
    for name, text in files.items():
        (tree / NAME / name).write_text(text)
    git("add", "--all", cwd=tree / NAME)
    git(*("commit", "--quiet", "-m", message), *options, cwd=tree / NAME)


def _export(project: Project, tree: Path) -> dict[str, str]:
    exports = plan_exports(project, tree)
    write_exports(tree, exports)
    return dict(exports[0].plan.states)


def test_an_untouched_tree_exports_to_the_very_same_bytes(project: Project, tree: Path) -> None:
    before = _series(project)
    exports = plan_exports(project, tree)
    assert all(item.plan.is_clean for item in exports)
    write_exports(tree, exports)
    assert _series(project) == before
    assert verify(tree) == []


def test_a_check_without_a_tree_checks_a_fresh_one(
    project: Project, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = _sources()
    with tree_to_export(project, None, check=True, sources=sources) as fresh:
        assert fresh != project.default_tree
        assert all(item.plan.is_clean for item in plan_exports(project, fresh, refresh=True))
    assert not fresh.exists()
    assert not project.default_tree.exists()
    assert "is not built; checking a fresh tree" in capsys.readouterr().err
    for given, check in ((tree, True), (None, False)):
        with tree_to_export(project, given, check=check, sources=sources) as where:
            assert where == (given or project.default_tree)


def test_a_check_without_a_tree_builds_only_what_it_checks(
    project: Project, tmp_path: Path
) -> None:
    sources = _sources()
    # Not even fetched: the repository of the other upstream is gone.
    shutil.rmtree(tmp_path / "upstream" / "transformer-engine")
    with tree_to_export(project, None, check=True, names=[NAME], sources=sources) as fresh:
        (only,) = plan_exports(project, fresh, [NAME])
        assert (only.plan.upstream, only.plan.is_clean) == (NAME, True)
        assert not (fresh / "transformer-engine").exists()
    with (
        pytest.raises(FatalError, match="transformer-engine"),
        tree_to_export(project, None, check=True, sources=sources),
    ):
        pass


def test_an_unknown_upstream_names_the_known_ones(project: Project, tree: Path) -> None:
    with pytest.raises(FatalError, match="no upstream 'megatron'") as caught:
        plan_exports(project, tree, ["megatron"])
    assert NAME in (caught.value.hint or "")
    with (
        pytest.raises(FatalError, match="no upstream 'megatron'"),
        tree_to_export(project, None, check=True, names=["megatron"], sources=_sources()),
    ):
        pass


def test_a_new_commit_becomes_the_next_patch(project: Project, tree: Path, tmp_path: Path) -> None:
    _commit(tree, {"new.py": "x = 1\n"}, "Add new.py")
    states = _export(project, tree)
    assert states == {
        "0001-Teach-megatron-lm-to-count.patch": "unchanged",
        "0002-Add-new.py.patch".replace(".py", "-py"): "new",
    }
    assert _series(project)["series"].decode().splitlines() == list(states)
    again = build(project, BuildRequest(tmp_path / "again", sources=_sources())).manifest
    head = git_text("rev-parse", "HEAD", cwd=tree / NAME)
    assert again.upstreams[NAME].head_commit == head
    assert (tmp_path / "again" / NAME / "new.py").read_text() == "x = 1\n"
    assert verify(tree) == []


def _sources() -> dict[str, Source]:
    return dict.fromkeys((NAME, "transformer-engine"), Source.parse("git"))


def test_the_name_survives_a_reword(project: Project, tree: Path) -> None:
    _commit(tree, {}, "Quite another subject", "--amend")
    assert _export(project, tree) == {"0001-Teach-megatron-lm-to-count.patch": "changed"}
    assert b"Subject: Quite another subject" in next(
        data for name, data in _series(project).items() if name.startswith("0001")
    )


def test_order_lives_in_series_alone(project: Project, tree: Path) -> None:
    _commit(tree, {"b.py": "b\n"}, "Add b")
    _export(project, tree)
    before = _series(project)
    git("rebase", "-i", "core_v1.0", cwd=tree / NAME, env={"GIT_SEQUENCE_EDITOR": _REVERSE})
    exports = plan_exports(project, tree)
    assert exports[0].plan.is_reordered
    assert set(exports[0].plan.states.values()) == {"unchanged"}
    write_exports(tree, exports)
    after = _series(project)
    assert after.pop("series").split() == before.pop("series").split()[::-1]
    assert after == before


_REVERSE = "sed -i -n '1!G;h;$p'"


def test_a_dropped_commit_removes_its_patch(project: Project, tree: Path) -> None:
    git("reset", "--quiet", "--hard", "core_v1.0", cwd=tree / NAME)
    assert _export(project, tree) == {"0001-Teach-megatron-lm-to-count.patch": "removed"}
    assert _series(project) == {"series": b""}


def test_only_the_patch_whose_content_changed_is_rewritten(project: Project, tree: Path) -> None:
    body = "".join(f"line {n}\n" for n in range(40))
    _commit(tree, {"long.py": body}, "Add long.py")
    _commit(tree, {"long.py": body.replace("line 30\n", "line thirty\n")}, "Change the end")
    _export(project, tree)
    before = _series(project)
    git("reset", "--quiet", "--hard", "HEAD^", cwd=tree / NAME)
    last = git_text("rev-parse", "ORIG_HEAD", cwd=tree / NAME)
    _commit(tree, {"long.py": "line zero\n" + body}, "Add long.py", "--amend")
    git("cherry-pick", last, cwd=tree / NAME)
    states = _export(project, tree)
    assert list(states.values()) == ["unchanged", "changed", "unchanged"]
    assert _series(project)["0003-Change-the-end.patch"] == before["0003-Change-the-end.patch"]
    assert all(item.plan.is_clean for item in plan_exports(project, tree))
    assert not plan_exports(project, tree, refresh=True)[0].plan.is_clean


def test_a_full_disk_changes_nothing(project: Project, tree: Path) -> None:
    _commit(tree, {"new.py": "x = 1\n"}, "Add new.py")
    before, plan = _series(project), plan_exports(project, tree)[0].plan
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            plans.write(plan)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert _series(project) == before
    assert sorted(path.name for path in project.patches.iterdir()) == [
        NAME,
        "transformer-engine",
        "upstreams.toml",
    ]


def test_comments_in_series_stay_above_their_patch(project: Project, tree: Path) -> None:
    path = project.series_dir(NAME, "1.0") / "series"
    path.write_text("# counting\n" + path.read_text())
    _commit(tree, {"b.py": "b\n"}, "Add b")
    _export(project, tree)
    assert path.read_text().splitlines()[0] == "# counting"


def test_the_header_of_a_list_stays_when_its_first_patch_goes() -> None:
    old = b"# All of them\n\n# on its own\n# counting\n0001-a.patch\n\n0002-b.patch\n"
    assert listing(["0001-a.patch", "0002-b.patch"], old) == old
    assert listing(["0002-b.patch"], old) == b"# All of them\n\n\n0002-b.patch\n"
    assert listing(["0003-c.patch", "0001-a.patch"], old).startswith(b"# All of them\n\n0003-c")


def test_uncommitted_changes_are_refused_and_named(project: Project, tree: Path) -> None:
    (tree / NAME / "code.py").write_text("mine\n")
    with pytest.raises(FatalError, match="changes that are in no commit") as caught:
        plan_exports(project, tree)
    assert "code.py" in caught.value.details[0]


def test_what_running_the_code_leaves_behind_is_no_change(project: Project, tree: Path) -> None:
    """A release has no .gitignore: one Python's bytecode must not fail the export of the next."""
    repository = tree / NAME
    shutil.rmtree(repository / ".git" / "info")  # a tree built before rules were written
    for path in ("pkg/__pycache__/code.cpython-311.pyc", ".pytest_cache/v", "x.egg-info/PKG-INFO"):
        (repository / path).parent.mkdir(parents=True)
        (repository / path).write_text("by-product\n")
    assert changes(repository) == []
    plan_exports(project, tree)
    (repository / "pkg" / "new.py").write_text("mine\n")
    assert changes(repository) == ["?? pkg/new.py"]


def test_git_adds_no_bytecode_to_a_patch(tree: Path) -> None:
    repository = tree / NAME
    (repository / "__pycache__").mkdir()
    (repository / "__pycache__" / "code.cpython-311.pyc").write_bytes(b"\0")
    (repository / "new.py").write_text("mine\n")
    git("add", "-A", cwd=repository)
    assert git("status", "--porcelain", cwd=repository) == b"A  new.py\n"


def test_an_unfinished_rebase_is_refused(project: Project, tree: Path) -> None:
    git(
        "rebase", "-i", "HEAD^", cwd=tree / NAME, env={"GIT_SEQUENCE_EDITOR": "sed -i s/pick/edit/"}
    )
    with pytest.raises(FatalError, match="unfinished"):
        plan_exports(project, tree)


def test_a_merge_is_refused(project: Project, tree: Path) -> None:
    git("checkout", "--quiet", "-b", "side", "core_v1.0", cwd=tree / NAME)
    _commit(tree, {"side.py": "x\n"}, "Side")
    git("checkout", "--quiet", "mxtree", cwd=tree / NAME)
    git("merge", "--quiet", "--no-ff", "-m", "Merge", "side", cwd=tree / NAME)
    with pytest.raises(FatalError, match="merge"):
        plan_exports(project, tree)


def test_a_branch_off_the_release_is_refused(project: Project, tree: Path) -> None:
    git("checkout", "--quiet", "--orphan", "other", cwd=tree / NAME)
    _commit(tree, {"x.py": "x\n"}, "Elsewhere")
    with pytest.raises(FatalError, match="not on top of the upstream release"):
        plan_exports(project, tree)


@pytest.mark.parametrize(
    "message",
    [
        "Subject\n\nbody\n\n\n\nafter many blank lines   \n",
        "[PERF] Subject with a tag\n\n-- >8 --\nbelow scissors\n",
        "Subject\n\nFrom the start of a line\n>From quoted\n",
        "Sübject ✓\n\nÄ\n",
    ],
)
def test_a_message_comes_back(project: Project, tree: Path, message: str) -> None:
    _commit(tree, {"b.py": "b\n"}, message, "--cleanup=verbatim")
    _export(project, tree)
    assert all(item.plan.is_clean for item in plan_exports(project, tree))
    made = git("log", "-1", "--format=%B", cwd=tree / NAME).decode().split()
    assert made == message.split()


def test_a_message_that_git_would_cut_is_refused_with_the_commit(
    project: Project, tree: Path
) -> None:
    _commit(tree, {"b.py": "b\n"}, "Subject\n\nbody\n---\nlost\n", "--cleanup=verbatim")
    commit = git_text("rev-parse", "--short=12", "HEAD", cwd=tree / NAME)
    with pytest.raises(FatalError, match=rf"{commit} .*does not survive") as caught:
        plan_exports(project, tree)
    assert caught.value.code == ExitCode.CHECK_FAILED


def test_a_tree_without_patches_has_nothing_to_export(project: Project, tmp_path: Path) -> None:
    build(project, BuildRequest(tmp_path / "stock", sources=_sources(), patched=False))
    with pytest.raises(FatalError, match="--no-patches"):
        plan_exports(project, tmp_path / "stock")
