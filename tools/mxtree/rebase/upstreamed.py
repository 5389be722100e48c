# SPDX-License-Identifier: Apache-2.0
"""Does upstream have the patch already, and since when?

Three proofs, in this order: an upstream commit with the same stable patch-id; the reverse of the
patch applies to the new base; nothing is left after the 3-way merge (the caller sees that one).
A patch-id alone is no proof: a commit that upstream reverted later has the same one. A reverse that
applies to a look-alike elsewhere proves nothing when a merge of the patch still changes something.
Only where the patch conflicts, a commit that took it and was not reverted is enough.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from mxtree.git import run_git

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.rebase.model import Rebase
    from mxtree.rebase.work import Work

# -R exchanges the prefixes, too, and they count in a patch-id.
_REVERTED = ("-R", "--src-prefix=b/", "--dst-prefix=a/")


class Upstreamed:
    """Answers for the patches of one rebase."""

    def __init__(self, work: Work, rebase: Rebase, touched: Sequence[frozenset[bytes]]) -> None:
        self._work = work
        self._rebase = rebase
        self._touched = touched

    def was_empty(self, index: int) -> bool:
        """Return whether a patch changed nothing to begin with."""
        return not self._touched[index]

    def after_empty_merge(self, index: int, patch: bytes) -> str:
        """Return since when upstream has a patch of which a merge left nothing."""
        twin = self._commits.get(self._patch_id(index))
        if twin:
            return f"same patch-id as {twin}"
        reverse = self._work.reverse_applies(patch, self._rebase.new.commit)
        proof = "its reverse applies" if reverse else "the 3-way merge leaves nothing of it"
        return f"in {self._first_holder(patch)}: {proof}"

    def after_conflict(self, index: int, patch: bytes) -> str:
        """Return since when upstream has a patch that conflicts, or "" when it has not.

        The reverse must apply to the new base, and a merge of the patch into what that gives must
        lead back to the new base: then the lines stand where the patch wants them.
        """
        work, new = self._work, self._rebase.new.commit
        without = work.without(patch, new)
        if without is None:
            return self._taken_and_changed(index)
        work.move_to(without)
        picked = work.pick([self._rebase.steps[index].old_commit])
        leads_back = picked.returncode == 0 and work.tree_of("HEAD") == work.tree_of(new)
        work.move_to(self._rebase.tip)
        if not leads_back:
            return self._taken_and_changed(index)
        twin = self._commits.get(self._patch_id(index))
        return (
            f"same patch-id as {twin}"
            if twin
            else f"in {self._first_holder(patch)}: its reverse applies"
        )

    def _taken_and_changed(self, index: int) -> str:
        """Return which commit took a patch whose lines upstream changed again later, else "".

        As `git rebase` has it, but not when upstream also reverted that commit.
        """
        twin = self._commits.get(self._patch_id(index))
        if not twin or self._patch_id(index, *_REVERTED) in self._commits:
            return ""
        return f"same patch-id as {twin}; upstream changed its lines again since"

    def held_between(self, patch: bytes) -> str:
        """Return which release between the bases has the whole patch, though the new one has not.

        What it says is for the user to decide on: the new base has changed or removed it since.
        """
        for end in self._rebase.between:
            if self._work.reverse_applies(patch, end.commit):
                return f"release {end.version} has all of it, {self._rebase.new.version} changed it"
        return ""

    def _first_holder(self, patch: bytes) -> str:
        """Return the first commit or release that has the content, by bisection."""
        stones = self._milestones
        if not self._work.reverse_applies(patch, stones[-1][1]):
            return stones[-1][0]
        low, high = 0, len(stones) - 1
        while low < high:
            middle = (low + high) // 2
            if self._work.reverse_applies(patch, stones[middle][1]):
                high = middle
            else:
                low = middle + 1
        label, commit = stones[low]
        return label or self._describe(commit)

    @cached_property
    def _milestones(self) -> list[tuple[str, str]]:
        """Upstream's history between the bases, oldest first: label ("" for commits), commit."""
        if self._range:
            return [("", commit) for commit in self._range]
        ends = (*self._rebase.between, self._rebase.new)
        return [(f"release {end.version}", end.commit) for end in ends]

    @cached_property
    def _range(self) -> list[str]:
        """Upstream's commits between the bases, oldest first; none for releases from the index."""
        old, new = self._rebase.old.commit, self._rebase.new.commit
        above = run_git("merge-base", "--is-ancestor", old, new, cwd=self._work.path, ok=range(256))
        return self._work.log(old, new) if above.returncode == 0 else []

    @cached_property
    def _commits(self) -> dict[str, str]:
        """Upstream's commits by stable patch-id, as far as they touch a path of the series."""
        if not self._range:
            return {}
        # On standard input: a long series has more paths than a command line holds.
        paths = sorted(p for p in frozenset().union(*self._touched) if b"\n" not in p)
        span = f"{self._rebase.old.commit}..{self._rebase.new.commit}"
        listing = self._work.git(
            *("--literal-pathspecs", "log", "--format=%H", "--no-merges", "--full-diff", "--stdin"),
            stdin=b"\n".join([span.encode(), b"--", *paths, b""]),
        )
        return {
            patch_id: self._describe(commit)
            for patch_id, commit in self._ids(listing.decode().split()).items()
        }

    def _patch_id(self, index: int, *options: str) -> str:
        commit = self._rebase.steps[index].old_commit
        return next(iter(self._ids([commit], *options)), "none")

    def _ids(self, commits: Sequence[str], *options: str) -> dict[str, str]:
        """Return commit by stable patch-id; with `_REVERTED` by that of its revert."""
        if not commits:
            return {}
        diffs = self._work.git(
            *("diff-tree", "--stdin", "--patch", "--full-index", "--binary", "--no-color"),
            *options,
            stdin="".join(f"{commit}\n" for commit in commits).encode(),
        )
        rows = self._work.git("patch-id", "--stable", stdin=diffs).decode().split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def _describe(self, commit: str) -> str:
        return self._work.text("log", "-1", "--format=commit %h (%cs, %s)", "--abbrev=12", commit)
