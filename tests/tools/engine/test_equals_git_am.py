# SPDX-License-Identifier: Apache-2.0
"""The engine against `git am`: the same commits, id for id, whatever the patches carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_am_reference import as_patches, format_otherwise, git_am
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_history import Commit, edits, histories, repository

from mxtree.engine import Applied, apply_prefix, apply_series
from mxtree.git import git, git_text
from mxtree.series.canonical import format_range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SLOW = settings(
    max_examples=35,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SLOW
@given(histories())
def test_a_generated_series_gives_the_commits_of_git_am(history: list[Commit]) -> None:
    with repository(history) as (repo, ids), repository(history[:1]) as (clone, (base,)):
        raws = format_range(repo, base, ids[-1])
        applied = apply_series(clone, base, as_patches(raws))
        made, said = git_am(clone, base, raws)
        assert [(item.commit, item.tree) for item in applied] == made, said
        trees = git("log", "--reverse", "--format=%T", f"{base}..main", cwd=repo).decode()
        assert [item.tree for item in applied] == trees.split()
        git("fsck", "--strict", "--no-dangling", applied[-1].commit, cwd=clone)
        assert git_text("rev-parse", "main", cwd=clone) == base, "a reference moved"
        _check_fixed_point(clone, base, applied)


def _check_fixed_point(repo: Path, base: str, applied: Sequence[Applied]) -> None:
    """What was applied exports to bytes that give the same commits and the same bytes again."""
    canonical = format_range(repo, base, applied[-1].commit)
    again = apply_series(repo, base, as_patches(canonical))
    assert [item.commit for item in again] == [item.commit for item in applied]
    assert format_range(repo, base, again[-1].commit) == canonical


#: What foreign patches come with: copies, broken pairs, another context, a statistic, a signature.
FOREIGN = (
    *(("-C", "--find-copies-harder"), ("-B",), ("--no-renames",), ("-U1",), ("-U12",), ("-U0",)),
    *(("--stat", "--signature=2.39.5"), ("-p", "--no-full-index", "--abbrev=12"), ("--patience",)),
    *(("--inter-hunk-context=9",), ("--src-prefix=x/", "--dst-prefix=y/"), ("--no-binary",)),
)


@SLOW
@given(histories(), st.sampled_from(FOREIGN))
def test_foreign_patches_give_the_commits_of_git_am(
    history: list[Commit], options: tuple[str, ...]
) -> None:
    with repository(history) as (repo, ids), repository(history[:1]) as (clone, (base,)):
        raws = format_otherwise(repo, ids[0], ids[-1], *options)
        applied, conflict = apply_prefix(clone, base, as_patches(raws))
        made, said = git_am(clone, base, raws)
        assert [(item.commit, item.tree) for item in applied] == made, said
        assert (conflict is None) == (len(made) == len(raws)), said


@st.composite
def moved_bases(draw: st.DrawFn) -> tuple[list[Commit], Commit]:
    """Return a history, and its base with lines of its files inserted, deleted or replaced."""
    history = draw(histories())
    tree = {
        path: (mode, draw(edits(content)) if draw(st.booleans()) else content)
        for path, (mode, content) in history[0].tree.items()
    }
    return history, Commit(tree, "Moved", history[0].author, history[0].date)


@SLOW
@given(moved_bases())
def test_on_another_base_it_stops_where_git_am_stops(case: tuple[list[Commit], Commit]) -> None:
    history, moved = case
    with repository(history) as (repo, ids), repository([moved]) as (other, (base,)):
        raws = format_range(repo, ids[0], ids[-1])
        applied, conflict = apply_prefix(other, base, as_patches(raws))
        made, said = git_am(other, base, raws)
        assert [(item.commit, item.tree) for item in applied] == made, said
        assert (conflict is None) == (len(made) == len(raws)), said
        if conflict is not None:
            assert conflict.patch.raw == raws[len(made)]
            assert len(conflict.details) <= 40
