# SPDX-License-Identifier: Apache-2.0
"""Starting, editing and folding patches with git's own rebase."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mxtree.edit.export import plan_exports, write_exports
from mxtree.edit.locate import locate
from mxtree.edit.rewrite import edit_patch, fold, new_patch
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.project import Project

NAME = "megatron-lm"
FIRST = "0001-Teach-megatron-lm-to-count.patch"


def _states(project: Project, tree: Path) -> dict[str, str]:
    return dict(plan_exports(project, tree)[0].plan.states)


def _add_second(project: Project, tree: Path) -> None:
    (tree / NAME / "new.py").write_text("x = 1\n")
    new_patch(project, tree, NAME, "Add x")
    write_exports(tree, plan_exports(project, tree))


def test_new_names_the_change_and_leaves_the_fields_to_fill_in(
    project: Project, tree: Path
) -> None:
    (tree / NAME / "new.py").write_text("x = 1\n")
    patch = new_patch(project, tree, NAME, "Add x")
    assert patch.name == "0002-Add-x.patch"
    message = git("log", "-1", "--format=%an <%ae>%n%B", cwd=tree / NAME).decode()
    assert message.startswith("Ada <ada@example.org>\nAdd x\n\nDescription:\nOrigin:\n")
    assert _states(project, tree) == {FIRST: "unchanged", "0002-Add-x.patch": "new"}


def test_a_number_that_another_version_uses_is_not_given_again(
    project: Project, tree: Path
) -> None:
    other = project.series_dir(NAME, "0.9")
    other.mkdir()
    (other / "0004-Elsewhere.patch").write_text("")
    (tree / NAME / "new.py").write_text("x = 1\n")
    assert new_patch(project, tree, NAME, "Add x").name == "0005-Add-x.patch"
    assert "0005-Add-x.patch" in _states(project, tree)


@pytest.mark.parametrize("rules", [None, "*.swp"])  # an older mxtree wrote none
@pytest.mark.parametrize("command", ["new", "fold"])
def test_bytecode_of_a_tree_that_ran_is_in_no_patch(
    project: Project, tree: Path, command: str, rules: str | None
) -> None:
    repository = tree / NAME
    exclude = repository / ".git" / "info" / "exclude"
    shutil.rmtree(exclude.parent)
    if rules is not None:
        exclude.parent.mkdir()
        exclude.write_text(rules)
    (repository / "__pycache__").mkdir()
    (repository / "__pycache__" / "code.cpython-311.pyc").write_bytes(b"\0")
    with pytest.raises(FatalError, match="has no changes"):
        new_patch(project, tree, NAME, "Nothing")
    (repository / "new.py").write_text("x = 1\n")
    if command == "new":
        new_patch(project, tree, NAME, "Add x")
    else:
        fold(tree, FIRST)
    assert b"pycache" not in git("ls-files", cwd=repository)
    assert b"new.py" in git("ls-files", cwd=repository)
    assert exclude.read_text().startswith(rules or "")


def test_new_without_a_change_is_refused(project: Project, tree: Path) -> None:
    with pytest.raises(FatalError, match="has no changes"):
        new_patch(project, tree, NAME, "Nothing")


def test_new_in_an_unknown_upstream_names_the_known_ones(project: Project, tree: Path) -> None:
    with pytest.raises(FatalError, match="no upstream 'megatron'") as caught:
        new_patch(project, tree, "megatron", "x")
    assert NAME in (caught.value.hint or "")


@pytest.mark.parametrize("wanted", [FIRST, f"{NAME}/0001", "Teach-megatron-lm-to-count"])
def test_a_patch_is_found_by_name_number_or_slug(tree: Path, wanted: str) -> None:
    assert locate(tree, wanted).name == FIRST


def test_an_ambiguous_or_unknown_patch_lists_the_candidates(tree: Path) -> None:
    with pytest.raises(FatalError, match="names several patches") as caught:
        locate(tree, "0001")
    assert len(caught.value.details) == 2
    with pytest.raises(FatalError, match="is not a patch"):
        locate(tree, "0042")


def test_edit_stops_at_the_patch_and_the_later_ones_follow(project: Project, tree: Path) -> None:
    _add_second(project, tree)
    edit_patch(tree, f"{NAME}/0001")
    assert not (tree / NAME / "new.py").exists()
    (tree / NAME / "code.py").write_text("def count():\n    return 2\n")
    git("commit", "--quiet", "--all", "--amend", "--no-edit", cwd=tree / NAME)
    git("rebase", "--continue", cwd=tree / NAME)
    assert _states(project, tree) == {FIRST: "changed", "0002-Add-x.patch": "unchanged"}


def test_fold_puts_the_change_into_the_patch(project: Project, tree: Path) -> None:
    _add_second(project, tree)
    (tree / NAME / "code.py").write_text("def count():\n    return 2\n")
    fold(tree, f"{NAME}/0001")
    assert _states(project, tree) == {FIRST: "changed", "0002-Add-x.patch": "unchanged"}
    write_exports(tree, plan_exports(project, tree))
    assert b"+    return 2" in (project.series_dir(NAME, "1.0") / FIRST).read_bytes()


def test_fold_that_breaks_a_later_patch_can_be_taken_back(project: Project, tree: Path) -> None:
    (tree / NAME / "code.py").write_text("def count():\n    return 1 + 1\n")
    new_patch(project, tree, NAME, "Count further")
    (tree / NAME / "code.py").write_text("def count():\n    return 7\n")
    with pytest.raises(FatalError, match="no longer applies") as caught:
        fold(tree, f"{NAME}/0001")
    assert caught.value.code == ExitCode.CONFLICT
    git("rebase", "--abort", cwd=tree / NAME)
    git("reset", "--quiet", "--mixed", "HEAD^", cwd=tree / NAME)
    assert (tree / NAME / "code.py").read_text() == "def count():\n    return 7\n"
