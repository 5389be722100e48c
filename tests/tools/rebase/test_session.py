# SPDX-License-Identifier: Apache-2.0
"""Conflict, continue, skip, abort, finish, undo; and everything a user can do wrong in between."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mxtree.__main__ import main
from mxtree.engine import apply_series
from mxtree.errors import ExitCode, FatalError
from mxtree.git import git, git_text, shell_git
from mxtree.rebase import finish as finishing
from mxtree.rebase.model import Outcome
from mxtree.rebase.screen import conflict_screen
from mxtree.rebase.session import canonical_series
from mxtree.rebase.verbs import Options, run
from mxtree.rebase.work import Work
from mxtree.series import load_series
from mxtree.series.canonical import format_range
from mxtree.tree.status import collect_status

from .conftest import NAME

if TYPE_CHECKING:
    from .conftest import Lab

ONE, TWO, OURS = "one\ntwo\nthree\n", "one\nTWO\nthree\n", "one\n2\nthree\n"


@pytest.fixture
def conflicted(lab: Lab) -> Lab:
    """A rebase that stopped at the second of three patches."""
    lab.commit({"a": ONE, "b": "b\n"})
    lab.release("1.0")
    lab.commit({"a": TWO}, "Shout")
    lab.release("2.0")
    lab.series({"b": "bb\n"}, {"a": OURS}, {"c": "c\n"})
    rebase = lab.start()
    assert (rebase.status, rebase.position) == ("conflict", 1)
    return lab


def test_the_screen_says_everything(conflicted: Lab) -> None:
    rebase, work = conflicted.session.load(), Work(conflicted.session.store.work)
    error = conflict_screen(work, rebase, canonical_series(work.path, rebase)[1])
    shown = "\n".join([error.message, *error.details, error.hint or ""])
    assert error.code == ExitCode.CONFLICT
    assert shell_git(Path("/a b/it's")) == """git -C '/a b/it'"'"'s'"""
    for expected in (
        "0002-Patch-2.patch",
        "2 of 3",
        "in a",
        "Shout",
        "--continue",
        "--skip",
        "--abort",
    ):
        assert expected in shown
    assert str(work.path) in shown
    assert "<<<<<<<" in conflicted.file("a")
    assert "|||||||" in conflicted.file("a"), "what the patch was made for is not shown"


def screen(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the command line shows when a rebase stops."""
    monkeypatch.setenv("MXTREE_PROJECT", str(lab.project.root))
    with pytest.raises(FatalError) as caught:
        run(Options(upstream=NAME, onto="2.0", source=f"git:{lab.upstream}"))
    return "\n".join([caught.value.message, *caught.value.details, caught.value.hint or ""])


def test_the_screen_names_a_patch_file_that_is_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": TWO})
    lab.release("2.0")
    lab.series({"a": OURS})
    path = lab.project.series_dir(NAME, "1.0") / "0001-Patch-1.patch"
    assert f"{path}:" in screen(lab, monkeypatch)
    assert path.is_file()


def test_the_screen_names_who_changed_the_lines_beside_an_insertion(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": "one\ntwo\nand a half\nthree\n"}, "Split hairs")
    lab.release("2.0")
    lab.series({"a": "one\ntwo\ninserted\nthree\n"})
    assert "Split hairs" in screen(lab, monkeypatch)


def test_the_screen_says_what_to_do_about_a_file_that_is_gone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.commit({"a": ONE, "b": "b\n"})
    lab.release("1.0")
    lab.commit({"a": None})
    lab.release("2.0")
    lab.series({"a": OURS})
    assert "in a: upstream has no such file; git rm it" in screen(lab, monkeypatch)


def test_status_shows_the_open_rebase_and_how_to_go_on(conflicted: Lab) -> None:
    status = collect_status(conflicted.project, conflicted.root / "no tree")
    assert "rebase of thing 1.0 onto 2.0: 1 of 3 patches done, conflict" in status.rebases[0]
    assert status.next_command == "mxtree rebase thing --continue"
    conflicted.session.skip("not needed")
    done = collect_status(conflicted.project, conflicted.root / "no tree")
    assert done.next_command == "mxtree rebase thing --finish"
    conflicted.session.store.state.unlink()
    lost = collect_status(conflicted.project, conflicted.root / "no tree")
    assert lost.next_command == "mxtree rebase thing --abort"


def test_continue_takes_the_staged_resolution(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    rebase = conflicted.session.resume()
    assert [step.outcome for step in rebase.steps] == [
        Outcome.UNTOUCHED,
        Outcome.RESOLVED,
        Outcome.UNTOUCHED,
    ]
    message = git(
        "log",
        "-1",
        "--format=%B",
        rebase.steps[1].new_commit or "",
        cwd=conflicted.session.store.work,
    )
    assert message.decode().rstrip("\n") == "Patch 2\n\nDescription: number 2"


def test_continue_takes_the_users_own_commit(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    work = conflicted.session.store.work
    git("commit", "--quiet", "--no-edit", cwd=work)
    message = git("log", "-1", "--format=%B", cwd=work).decode().rstrip("\n")
    assert message == "Patch 2\n\nDescription: number 2", "git's list of conflicts is in it"
    assert conflicted.session.resume().status == "done"


@pytest.mark.parametrize("commits_by_hand", [False, True])
def test_a_conflict_resolved_before_is_offered_again_and_named(
    conflicted: Lab, monkeypatch: pytest.MonkeyPatch, commits_by_hand: bool
) -> None:
    work = conflicted.session.store.work
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    if commits_by_hand:
        plain = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--no-edit"]
        subprocess.run(plain, cwd=work, check=True)
    assert conflicted.session.resume().steps[1].replayed == ()
    conflicted.session.abort()
    said = screen(conflicted, monkeypatch)
    assert "in a is what was made of the same conflict before: look at it, then add it" in said
    assert conflicted.file("a") == "one\nTWO 2\nthree\n"
    with pytest.raises(FatalError, match="unmerged"):
        conflicted.session.resume()
    git("add", "a", cwd=work)
    rebase = conflicted.session.resume()
    assert rebase.status == "done"
    offered = "a resolution from before was offered in a; 2 of 2 changed lines"
    assert rebase.steps[1].evidence.startswith(offered)
    assert conflicted.session.resume() == rebase, "a finished one has nothing to continue"


def test_odd_files_are_named_as_they_are(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """No conflict of a binary, a link or an odd name passes for one resolved before."""
    names = ["new\nline", os.fsdecode(b"lat\xe9"), ":(top)x", "-dash"]
    versions = ((ONE, b"\0\1", "a"), (TWO, b"\0\2", "b"), (OURS, b"\0\3", "c"))

    def commit(content: tuple[str, bytes, str]) -> None:
        text, binary, target = content
        for name in names:
            (lab.upstream / name).write_text(text)
        (lab.upstream / "bin").write_bytes(binary * 50)
        (lab.upstream / "link").unlink(missing_ok=True)
        (lab.upstream / "link").symlink_to(target)
        lab.commit({}, "Patch\n\nDescription: odd\n")

    commit(versions[0])
    lab.release("1.0")
    commit(versions[1])
    lab.release("2.0")
    git("checkout", "--quiet", "--detach", "v1.0", cwd=lab.upstream)
    commit(versions[2])
    directory = lab.project.series_dir(NAME, "1.0")
    directory.mkdir(parents=True)
    raw = format_range(lab.upstream, "v1.0", "HEAD")
    (directory / "0001-odd.patch").write_bytes(raw[-1])
    (directory / "series").write_text("0001-odd.patch\n")
    said = screen(lab, monkeypatch)
    assert "upstream has no such file" not in said
    assert "same conflict before" not in said
    for name in ("-dash", ":(top)x", "lat\ufffd"):
        assert f"{name}:2-2 was changed upstream by" in said
    work = lab.session.store.work
    git("add", "--all", cwd=work)
    with pytest.raises(FatalError, match="markers remain") as caught:
        lab.session.resume()
    assert len(caught.value.details) == len(names)
    for name in names:
        (work / name).write_text("one\nTWO 2\nthree\n")
    git("add", "--all", cwd=work)
    assert lab.session.resume().status == "done"
    lab.session.abort()
    again = screen(lab, monkeypatch)
    assert again.count("same conflict before") == len(names)
    assert "in bin is" not in again
    assert "in link is" not in again


def test_another_conflict_is_not_taken_for_one_resolved_before(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    conflicted.session.resume()
    conflicted.session.abort()
    path = conflicted.project.series_dir(NAME, "1.0") / "0002-Patch-2.patch"
    path.write_text(path.read_text().replace("+2\n", "+zwei\n"))
    rebase = conflicted.start()
    assert (rebase.status, rebase.current.replayed) == ("conflict", ())
    assert "<<<<<<<" in conflicted.file("a")


def test_conflict_markers_are_refused_with_file_and_line(conflicted: Lab) -> None:
    git("add", "a", cwd=conflicted.session.store.work)
    with pytest.raises(FatalError, match="conflict markers remain") as caught:
        conflicted.session.resume()
    assert caught.value.details == ("a:2",)
    assert conflicted.session.load().status == "conflict"


def test_unmerged_paths_are_refused(conflicted: Lab) -> None:
    with pytest.raises(FatalError, match="unmerged") as caught:
        conflicted.session.resume()
    assert "mxtree rebase thing --continue" in (caught.value.hint or "")


def test_unstaged_changes_are_refused(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    (conflicted.session.store.work / "b").write_text("by the way\n")
    with pytest.raises(FatalError, match="not staged"):
        conflicted.session.resume()


def test_an_empty_resolution_is_refused(conflicted: Lab) -> None:
    conflicted.resolve({"a": TWO})
    with pytest.raises(FatalError, match="nothing is left of patch 0002") as caught:
        conflicted.session.resume()
    assert "--skip" in (caught.value.hint or "")


def test_commits_behind_its_back_are_refused(conflicted: Lab) -> None:
    work = conflicted.session.store.work
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    git("commit", "--quiet", "--no-edit", cwd=work)
    git("commit", "--quiet", "--allow-empty", "-m", "stranger", cwd=work)
    with pytest.raises(FatalError, match="did not make") as caught:
        conflicted.session.resume()
    assert "stranger" in caught.value.details[0]
    assert "mxtree rebase thing --continue" in (caught.value.hint or "")


def test_a_base_that_has_a_series_is_refused_before_any_work(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": TWO})
    lab.release("2.0")
    lab.series({"a": OURS})
    lab.project.series_dir(NAME, "2.0").mkdir()
    with pytest.raises(FatalError, match=r"2\.0 exists already") as caught:
        lab.start()
    assert "git -C" in (caught.value.hint or "")
    assert not lab.session.store.is_open()


def test_skip_needs_a_reason_and_records_it(conflicted: Lab) -> None:
    with pytest.raises(FatalError, match="only for a reason"):
        conflicted.session.skip(" ")
    rebase = conflicted.session.skip("upstream shouts now")
    assert rebase.status == "done"
    assert (rebase.steps[1].outcome, rebase.steps[1].evidence) == (
        Outcome.DROPPED,
        "upstream shouts now",
    )


def test_abort_leaves_everything_as_it_was(conflicted: Lab) -> None:
    conflicted.session.abort()
    assert not conflicted.session.store.is_open()
    assert not conflicted.project.series_dir("thing", "2.0").exists()
    with pytest.raises(FatalError, match="no rebase of thing is under way"):
        conflicted.session.abort()
    assert conflicted.start().status == "conflict"


def test_a_second_rebase_is_refused_while_one_is_open(conflicted: Lab) -> None:
    with pytest.raises(FatalError, match="is open"):
        conflicted.start()


def test_a_lost_state_file_names_the_way_out(conflicted: Lab) -> None:
    conflicted.session.store.state.unlink()
    with pytest.raises(FatalError, match=r"state file .* is gone") as caught:
        conflicted.session.resume()
    assert "--abort" in (caught.value.hint or "")
    conflicted.session.abort()
    assert conflicted.start().status == "conflict"


def test_a_series_edited_during_the_rebase_is_refused(conflicted: Lab) -> None:
    path = conflicted.project.series_dir("thing", "1.0") / "series"
    path.write_text("# edited\n" + path.read_text())
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    with pytest.raises(FatalError, match="changed since the rebase began"):
        conflicted.session.resume()


def test_finish_writes_a_series_that_applies_and_moves_the_pin(conflicted: Lab) -> None:
    with pytest.raises(FatalError, match="is not done"):
        finishing.finish(conflicted.session)
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    rebase = conflicted.session.resume()
    work = conflicted.session.store.work
    tree = git_text("rev-parse", f"{rebase.tip}^{{tree}}", cwd=work)
    pins = conflicted.project.upstreams_file.read_text()
    kept = conflicted.root / "kept"
    git("clone", "--quiet", "--bare", work, kept)
    git("fetch", "--quiet", work, rebase.new.commit, cwd=kept)
    target = finishing.finish(conflicted.session)
    series = load_series(target)
    assert [patch.name for patch in series.patches] == [step.name for step in rebase.steps]
    assert apply_series(kept, rebase.new.commit, series.patches)[-1].tree == tree
    assert conflicted.project.upstreams_file.read_text() == pins.replace(
        'default = "1.0"', 'default = "2.0"'
    )
    assert finishing.undo(conflicted.session) == target
    assert not target.exists()
    assert conflicted.project.upstreams_file.read_text() == pins


def test_undo_does_not_take_back_work_done_since(conflicted: Lab) -> None:
    conflicted.session.skip("not needed")
    target = finishing.finish(conflicted.session)
    (target / "series").write_text("# mine\n" + (target / "series").read_text())
    with pytest.raises(FatalError, match="was changed since"):
        finishing.undo(conflicted.session)
    assert (target / "series").read_text().startswith("# mine")


def test_merged_and_dropped_patches_are_not_in_the_new_series(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": OURS}, "Take it")
    lab.release("2.0")
    lab.series({"a": OURS}, {"b": "b\n"})
    rebase = lab.start(keep_pin=True)
    assert rebase.status == "done"
    target = finishing.finish(lab.session)
    assert [patch.name for patch in load_series(target).patches] == ["0002-Patch-2.patch"]
    assert 'default = "1.0"' in lab.project.upstreams_file.read_text()


def test_comments_of_the_list_go_along(conflicted: Lab) -> None:
    conflicted.session.abort()
    names = ["0001-Patch-1.patch", "0002-Patch-2.patch", "0003-Patch-3.patch"]
    text = "# first\n{}\n\n# clash\n{}\n# last,\u2028because\n{}\n# the end\n".format(*names)
    (conflicted.project.series_dir(NAME, "1.0") / "series").write_text(text)
    conflicted.start()
    conflicted.session.skip("not needed")
    written = (finishing.finish(conflicted.session) / "series").read_text()
    assert written == text.replace(f"\n# clash\n{names[1]}\n", "")


def test_an_untracked_file_in_the_way_is_named_and_kept(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": "zero\n" + ONE, "z": "z\n"})
    lab.release("2.0")
    lab.series({"a": ONE + "end\n"}, {"a": ONE + "END\n", "notes": "of the patch\n"})
    with pytest.raises(FatalError, match="untracked files are in the way") as caught:
        lab.start(exec_command="test -e notes || echo mine > notes")
    assert caught.value.details == ("notes",)
    assert "--continue" in (caught.value.hint or "")
    path = lab.session.store.work / "notes"
    assert path.read_text() == "mine\n"
    path.unlink()
    assert lab.session.resume().status == "done"


def test_attributes_of_upstream_make_no_change_of_their_own(lab: Lab) -> None:
    """`text` makes git see a file with CRLF as changed as soon as it is written."""
    attributes = "* text eol=lf\nc merge=union\n"
    lab.commit({".gitattributes": "", "a": ONE, "c": ONE})
    (lab.upstream / "crlf").write_bytes(b"one\r\ntwo\r\n")
    lab.commit({})
    lab.release("1.0")
    lab.commit({"a": TWO, "c": TWO})
    (lab.upstream / ".git/info/attributes").write_text("* -text")
    lab.commit({".gitattributes": attributes})
    lab.release("2.0")
    lab.series({"a": OURS, "c": OURS})
    assert lab.start().status == "conflict"
    assert Work(lab.session.store.work).unmerged() == ["a", "c"], "a union is no resolution"
    lab.resolve({"a": "one\nTWO 2\nthree\n", "c": "one\nTWO 2\nthree\n"})
    assert lab.session.resume().status == "done"


def test_exec_runs_after_each_patch_and_its_failure_stops(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"z": "z\n"})
    lab.release("2.0")
    lab.series({"b": "b\n"}, {"c": "c\n"})
    log = lab.root / "log"
    rebase = lab.start(exec_command=f'echo "$MXTREE_PATCH" >> {log}; test ! -e c')
    assert log.read_text().splitlines() == ["0001-Patch-1.patch", "0002-Patch-2.patch"]
    assert rebase.status == "exec-failed"
    assert lab.session.resume().status == "done"


def test_exec_runs_after_a_resolved_patch_too(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"a": TWO})
    lab.release("2.0")
    lab.series({"a": OURS}, {"b": "b\n"})
    log = lab.root / "log"
    command = f'echo "$MXTREE_PATCH" >> {log}; test -e b || grep -q better a'
    assert lab.start(exec_command=command).status == "conflict"
    lab.resolve({"a": "worse\n"})
    assert lab.session.resume().status == "exec-failed"
    lab.resolve({"a": "better\n"})
    git("commit", "--quiet", "--amend", "--no-edit", cwd=lab.session.store.work)
    rebase = lab.session.resume()
    assert (rebase.status, lab.file("a")) == ("done", "better\n")
    assert log.read_text().splitlines() == ["0001-Patch-1.patch", "0002-Patch-2.patch"]


@pytest.fixture
def stopped_by_exec(lab: Lab) -> Lab:
    """A rebase whose command failed after the only patch."""
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"z": "z\n"})
    lab.release("2.0")
    lab.series({"b": "b\n"})
    assert lab.start(exec_command="false").status == "exec-failed"
    return lab


def test_what_is_staged_after_a_failed_command_is_not_thrown_away(stopped_by_exec: Lab) -> None:
    stopped_by_exec.resolve({"b": "better\n"})
    with pytest.raises(FatalError, match="staged and in no commit") as caught:
        stopped_by_exec.session.resume()
    assert "commit --amend" in (caught.value.hint or "")
    assert stopped_by_exec.file("b") == "better\n"
    work = stopped_by_exec.session.store.work
    git("commit", "--quiet", "--amend", "--no-edit", cwd=work)
    rebase = stopped_by_exec.session.resume()
    assert (rebase.status, stopped_by_exec.file("b")) == ("done", "better\n")


@pytest.mark.parametrize(
    "command",
    [
        "echo tidy >> b",
        "echo tidy >> b; git add b",
        "git -c user.name=a -c user.email=a@b commit -q --amend -m other",
    ],
)
def test_a_command_that_changes_the_patch_stops(
    lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"z": "z\n"})
    lab.release("2.0")
    lab.series({"b": "b\n"})
    monkeypatch.setenv("MXTREE_PROJECT", str(lab.project.root))
    with pytest.raises(FatalError, match="failed or changed files") as caught:
        run(Options(NAME, "2.0", source=f"git:{lab.upstream}", exec_command=command))
    assert caught.value.details
    git("reset", "--quiet", "--hard", lab.session.load().tip, cwd=lab.session.store.work)
    assert lab.session.resume().status == "done"


def test_the_command_s_git_is_that_of_the_work_tree(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"z": "z\n"})
    lab.release("2.0")
    lab.series({"b": "b\n"})
    monkeypatch.setenv("GIT_DIR", str(lab.upstream / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(lab.root / "elsewhere"))
    log = lab.root / "log"
    lab.start(exec_command=f"git rev-parse --absolute-git-dir > {log}")
    assert log.read_text().strip() == str(lab.session.store.work / ".git")


def test_what_is_staged_beside_the_users_own_commit_is_not_thrown_away(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    git("commit", "--quiet", "--no-edit", cwd=conflicted.session.store.work)
    conflicted.resolve({"b": "also\n"})
    with pytest.raises(FatalError, match="staged and in no commit"):
        conflicted.session.resume()
    assert conflicted.file("b") == "also\n"


def test_a_new_message_is_taken_and_one_that_a_patch_would_cut_is_not(conflicted: Lab) -> None:
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    work = conflicted.session.store.work
    git("commit", "--quiet", "-m", "Say it louder", "-m", "why\n---\nmore", cwd=work)
    with pytest.raises(FatalError, match="cut or misread the message"):
        conflicted.session.resume()
    git("commit", "--quiet", "--amend", "-m", "Say it louder", cwd=work)
    rebase = conflicted.session.resume()
    assert rebase.status == "done"
    assert (
        rebase.steps[1].evidence
        == "2 of 2 changed lines left out, 2 new; message or author changed"
    )
    series = load_series(finishing.finish(conflicted.session)).patches
    assert series[1].subject == "Say it louder"


@pytest.mark.parametrize(
    ("onto", "options", "message"),
    [
        ("3.0", {}, "no revision '3.0'"),
        ("1.0", {}, "is on 1.0 already"),
        ("0.9", {}, "is older than 1.0"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(
    lab: Lab, onto: str, options: dict[str, object], message: str
) -> None:
    lab.commit({"a": "zero\n"})
    lab.release("0.9")
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.series({"a": OURS})
    with pytest.raises(FatalError, match=message):
        lab.start(onto, **options)
    assert not lab.session.store.is_open()


def test_a_branch_or_commit_can_be_the_target(lab: Lab) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.series({"a": OURS})
    commit = lab.commit({"z": "z\n"})
    rebase = lab.start(commit)
    assert rebase.new.version == f"g{commit[:12]}"
    finishing.finish(lab.session)
    assert load_series(lab.project.series_dir("thing", rebase.new.version)).patches


_STEPS = """
import os, signal, sys
from pathlib import Path
from mxtree.project import Project
from mxtree.rebase.session import Session
from mxtree.rebase.store import Store
from mxtree.rebase.verbs import Options, request
from mxtree.upstreams import load_upstreams

root, kill_at = Path(sys.argv[1]), int(sys.argv[2])
project, count, save = Project(root / "project"), 0, Store.save

def counting(self, rebase):
    global count
    save(self, rebase)
    count += 1
    if count == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

Store.save = counting
options = Options(upstream="thing", onto="2.0", source=f"git:{root / 'upstream'}")
Session(project, "thing").start(request(project, load_upstreams(project).get("thing"), options))
"""


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4])
def test_killed_at_a_state_change_it_goes_on_as_if_nothing_happened(lab: Lab, kill_at: int) -> None:
    """SIGKILL right after each state is written, also the first, which is not in place yet."""
    lab.commit({"a": ONE, "b": "b\n"})
    lab.release("1.0")
    lab.commit({"a": "zero\n" + ONE, "b": "B\n"})
    lab.release("2.0")
    lab.series({"a": ONE + "end\n"}, *({f"n{n}": "x\n"} for n in range(9)), {"a": ONE + "END\n"})
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", _STEPS, str(lab.root), str(kill_at)]
    killed = subprocess.run(argv, env=env, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    rebase = lab.session.resume() if lab.session.store.is_open() else lab.start()
    assert rebase.status == "done"
    assert rebase.counts().total() == 11
    assert lab.file("a") == "zero\n" + ONE + "END\n"


def test_a_full_disk_leaves_the_old_state(conflicted: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conflicted.session.store.state.read_bytes()
    conflicted.resolve({"a": "one\nTWO 2\nthree\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises((OSError, FatalError)):
            conflicted.session.resume()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert conflicted.session.store.state.read_bytes() == before
    assert conflicted.session.resume().status == "done"


def test_a_full_disk_at_the_start_leaves_nothing_and_names_the_way_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.commit({"a": ONE})
    lab.release("1.0")
    lab.commit({"b": "b\n" * 9000})
    lab.release("2.0")
    lab.series({"a": OURS})
    monkeypatch.setenv("MXTREE_PROJECT", str(lab.project.root))
    argv = ["mxtree", "rebase", NAME, "--onto", "2.0", "--source", f"git:{lab.upstream}"]
    monkeypatch.setattr(sys, "argv", [*argv, "--dry-run"])
    assert main() == ExitCode.OK
    monkeypatch.setattr(sys, "argv", argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))
    try:
        assert main() == ExitCode.COULD_NOT_CHECK
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert "next: make room" in capsys.readouterr().err
    left = [path.name for path in (lab.project.root / ".mxtree" / "rebase").iterdir()]
    assert not any("new" in name or name == NAME for name in left), left
    assert main() == ExitCode.OK
