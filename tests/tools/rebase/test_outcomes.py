# SPDX-License-Identifier: Apache-2.0
"""Every patch ends in exactly one class, and upstream's possession is proven, never guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mxtree.git import git, git_text
from mxtree.rebase.bases import resolve
from mxtree.rebase.forecast import forecast
from mxtree.rebase.model import Outcome
from mxtree.rebase.story import GRAPH_LIMIT
from mxtree.rebase.verbs import Options, request, run
from mxtree.upstreams import Source, load_upstreams

if TYPE_CHECKING:
    from mxtree.rebase.model import Rebase

    from .conftest import Lab

LINES = [f"line {n}\n" for n in range(60)]


def text(*changes: tuple[int, str]) -> str:
    """Return the file with some lines replaced (an empty text deletes the line)."""
    lines = list(LINES)
    for index, new in changes:
        lines[index] = new
    return "".join(lines)


def outcomes(rebase: Rebase) -> list[str | None]:
    return [step.outcome for step in rebase.steps]


def test_an_unrelated_change_upstream_leaves_patches_untouched(lab: Lab) -> None:
    lab.commit({"a": text(), "b": "b\n"})
    lab.release("1.0")
    lab.commit({"b": "other\n"})
    lab.release("2.0")
    lab.series({"a": text((5, "five\n"))}, {"new": "x\n"})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.UNTOUCHED, Outcome.UNTOUCHED]
    assert rebase.status == "done"


def test_shifted_lines_are_an_offset(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": "new first line\n" + text()})
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.OFFSET]


def test_changed_context_is_refreshed(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((27, "twenty-seven\n"))})
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.REFRESHED]
    assert rebase.steps[0].evidence == "context lines only"


def test_the_same_commit_upstream_is_merged_and_named(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": "first\n" + text()}, "before")
    taken = lab.commit({"a": "first\n" + text((30, "thirty\n"))}, "Take the patch")
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))}, {"a": text((30, "thirty\n"), (50, "fifty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.MERGED, Outcome.OFFSET]
    assert taken[:12] in rebase.steps[0].evidence
    assert "same patch-id" in rebase.steps[0].evidence


def test_a_squashed_merge_is_proven_by_the_reverse_and_dated(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    taken = lab.commit({"a": text((30, "thirty\n")), "other": "x\n"}, "Squash of many things")
    lab.commit({"other": "y\n"})
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.MERGED]
    assert taken[:12] in rebase.steps[0].evidence
    assert "reverse applies" in rebase.steps[0].evidence


def test_an_empty_merge_counts_where_the_reverse_does_not_apply(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((30, "thirty\n"), (33, "thirty-three\n"))}, "Take it and change context")
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.MERGED]
    assert "3-way merge leaves nothing" in rebase.steps[0].evidence


def test_a_commit_that_upstream_reverted_is_not_merged(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((30, "thirty\n"))}, "Take the patch")
    lab.commit({"a": text()}, "Revert it")
    lab.commit({"a": text((10, "ten\n"))}, "Go on")
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    assert outcomes(lab.start()) == [Outcome.UNTOUCHED]


def test_a_commit_that_upstream_took_and_changed_later_is_merged_and_named(lab: Lab) -> None:
    """As in a release branch whose commits upstream has, with later work on top."""
    paths = {f":(exclude)odd {n}": "x\n" for n in range(3)}
    lab.commit({"a": text(), **paths})
    lab.release("1.0")
    patch = {"a": text((30, "thirty\n")), ":(exclude)odd 1": "y\n"}
    taken = lab.commit(patch, "Take the patch")
    lab.commit({"a": text((30, "thirty, better\n")), ":(exclude)odd 1": "z\n"}, "Go on")
    lab.release("2.0")
    lab.series(patch)
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.MERGED]
    assert rebase.steps[0].evidence.startswith(f"same patch-id as commit {taken[:12]}")
    assert "changed its lines again since" in rebase.steps[0].evidence


def test_a_commit_that_upstream_took_and_reverted_still_conflicts(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((30, "thirty\n"))}, "Take the patch")
    lab.commit({"a": text()}, "Revert it")
    lab.commit({"a": text((30, "in another way\n"))}, "Solve it otherwise")
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    assert lab.start().status == "conflict"


def test_a_look_alike_elsewhere_does_not_count_as_merged(lab: Lab) -> None:
    """The reverse applies, at another block: the patch must be kept, not lost."""
    block = "def f():\n    a\n    b\n    c\n    d\n    e\n    f\n\n"
    with_x = block.replace("    d\n", "    d\n    x\n")
    lab.commit({"a": block + "----\n" + "tail\n"})
    lab.release("1.0")
    lab.commit({"a": block.replace("    a\n", "    A\n") + "----\n" + with_x + "tail\n"})
    lab.release("2.0")
    lab.series({"a": with_x + "----\n" + "tail\n"})
    rebase = lab.start()
    assert outcomes(rebase)[0] in {Outcome.OFFSET, Outcome.REFRESHED, Outcome.UNTOUCHED}
    assert lab.file("a").count("    x\n") == 2


def test_a_partial_merge_is_reported_as_such(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((10, "ten\n"))})
    lab.release("2.0")
    lab.series({"a": text((10, "ten\n"), (40, "forty\n"))})
    rebase = lab.start()
    assert outcomes(rebase) == [Outcome.REFRESHED]
    assert (
        rebase.steps[0].evidence == "partly merged upstream: 2 of 4 changed lines are there already"
    )


def test_an_empty_patch_is_kept(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((10, "ten\n"))})
    lab.release("2.0")
    lab.series({}, {"a": text((40, "forty\n"))})
    assert outcomes(lab.start()) == [Outcome.UNTOUCHED, Outcome.UNTOUCHED]


def test_a_patch_follows_a_renamed_file(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": None, "b": text()})
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    rebase = lab.start()
    assert rebase.status == "done"
    assert lab.file("b") == text((30, "thirty\n"))


@pytest.mark.parametrize("count", [3, 40])
def test_the_tree_is_that_of_git_rebase(lab: Lab, count: int) -> None:
    """Long easy stretches, short ones, and merges in between."""
    lab.commit({"a": text(), "b": text(), "c": text()})
    lab.release("1.0")
    lab.commit({"a": "first\n" + text((50, "fifty\n")), "b": text()})
    lab.release("2.0")
    changes, state = [], {"a": list(LINES), "b": list(LINES), "c": list(LINES)}
    for number in range(count):
        name = "a" if number % 13 == 2 else "bc"[number % 2]
        state[name][number % 40] = f"patch {number}\n"
        changes.append({name: "".join(state[name])})
    lab.series(*changes)
    rebase = lab.start()
    assert rebase.counts().total() == count
    assert Outcome.CONFLICT not in outcomes(rebase)
    tip = rebase.steps[-1].old_commit
    work = lab.root / "reference"
    git("clone", "--quiet", lab.session.store.work, work)
    git("fetch", "--quiet", "origin", tip, rebase.old.commit, rebase.new.commit, cwd=work)
    git("rebase", "--quiet", "--onto", rebase.new.commit, rebase.old.commit, tip, cwd=work)
    expected = git_text("rev-parse", "HEAD^{tree}", cwd=work)
    assert git_text("rev-parse", f"{rebase.tip}^{{tree}}", cwd=lab.session.store.work) == expected


def test_a_forecast_tells_conflicts_that_follow_from_others(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((10, "upstream\n"), (50, "upstream too\n"))})
    lab.release("2.0")
    first = text((10, "first\n"))
    lab.series(
        {"a": first},
        {"a": first.replace("first\n", "first, then second\n")},
        {"a": text((10, "first, then second\n"), (50, "third\n"))},
    )
    wanted = Options(upstream="thing", onto="2.0", source=f"git:{lab.upstream}")
    upstream = load_upstreams(lab.project).get("thing")
    steps = forecast(lab.project, request(lab.project, upstream, wanted)).rebase.steps
    assert [step.outcome for step in steps] == [Outcome.CONFLICT] * 3
    assert [step.evidence for step in steps] == [
        "in a",
        "in a; follows from 0001-Patch-1.patch: may apply once resolved",
        "in a",
    ]
    assert [step.follows for step in steps] == [(), ("0001-Patch-1.patch",), ()]


def test_a_forecast_of_a_long_series_tells_them_too_and_says_what_is_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((10, "upstream\n"))})
    lab.release("2.0")
    first, second = text((10, "first\n")), text((10, "first, then second\n"))
    lab.series({"a": first}, {"a": second}, *({f"n{n}": "x\n"} for n in range(GRAPH_LIMIT)))
    monkeypatch.setenv("MXTREE_PROJECT", str(lab.project.root))
    given = f"git:{lab.upstream}"
    assert run(Options("thing", "2.0", source=given, dry_run=True)) == 0
    *_, summary, after = capsys.readouterr().out.splitlines()
    assert summary.endswith("2 conflict (1 of them may follow from the others)")
    assert after.endswith(f"mxtree rebase thing --onto 2.0 --source {given} (do it)")
    lab.project.series_dir("thing", "2.0").mkdir()
    assert run(Options("thing", "2.0", source=given, dry_run=True)) == 0
    assert "patches/thing/2.0 holds a series for 2.0 already" in capsys.readouterr().out


def test_a_conflict_names_the_release_between_that_had_the_patch(lab: Lab) -> None:
    lab.commit({"a": text()})
    lab.release("1.0")
    lab.commit({"a": text((30, "thirty\n"))})
    lab.release("1.5")
    lab.commit({"a": text((30, "thirty, better\n"))})
    lab.release("2.0")
    lab.series({"a": text((30, "thirty\n"))})
    upstream = load_upstreams(lab.project).get("thing")
    wanted = Options(upstream="thing", onto="2.0", source=f"git:{lab.upstream}")
    given = request(lab.project, upstream, wanted)
    between = resolve(lab.project, upstream, "1.5", Source.parse(wanted.source))
    given = replace(given, between=(between,), history=None)
    said = "release 1.5 has all of it, 2.0 changed it"
    assert forecast(lab.project, given).rebase.steps[0].evidence == f"in a; {said}"
    rebase = lab.session.start(given)
    assert (rebase.status, rebase.current.evidence) == ("conflict", said)
    assert lab.session.skip("upstream has it").steps[0].evidence == "upstream has it"
