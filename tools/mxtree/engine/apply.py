# SPDX-License-Identifier: Apache-2.0
"""Apply a series on a base commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.engine.am import AmSession
from mxtree.engine.conflict import conflict_error, refused_by_git
from mxtree.engine.edit import AskGitError, BeyondSymlinkError, MismatchError, make_edit
from mxtree.engine.model import Applied, ConflictError, Fit
from mxtree.engine.safety import beyond_symlink, check_changed, names_of, parse_sections
from mxtree.engine.state import TreeState
from mxtree.engine.stream import CommitStream
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from mxtree.series import Patch
    from mxtree.series.diff import FilePatch
    from mxtree.series.mail import Mail


def apply_series(
    repo: Path, base: str, patches: Sequence[Patch], *, three_way: bool = False
) -> tuple[Applied, ...]:
    """Apply ``patches`` in order on commit ``base`` of ``repo``: one commit each.

    Objects are written into ``repo`` (bare or not); no reference moves. The commits are those of
    the hermetic `git am --committer-date-is-author-date`, id for id. Raises `ConflictError` for
    the first patch that does not apply (with ``three_way``: not even by a merge with the blobs
    that its index lines name), and `FatalError` for a path that leads out of the tree.
    """
    applied, conflict = apply_prefix(repo, base, patches, three_way=three_way)
    if conflict is not None:
        raise conflict
    return applied


def apply_prefix(
    repo: Path, base: str, patches: Sequence[Patch], *, three_way: bool = False
) -> tuple[tuple[Applied, ...], ConflictError | None]:
    """Apply as many of ``patches`` as fit; return them, and the conflict that ended it."""
    parsed = [parse_sections(patch) for patch in patches]
    with AmSession(repo, f"{base}^{{commit}}") as session:
        run = _Run(session, session.resolved[0], names_of(parsed), three_way=three_way)
        conflict = None
        try:
            for patch, sections in zip(patches, parsed, strict=True):
                run.apply(patch, sections)
        except ConflictError as error:
            conflict = error
        except BaseException:
            run.close()
            raise
        return run.finish(), conflict


class _Run:
    """Patches on their way to commits: some in the open stream, the earlier ones written."""

    def __init__(
        self, session: AmSession, base: str, paths: Collection[bytes], *, three_way: bool
    ) -> None:
        self.tree = TreeState(session, base)
        self._session = session
        self._three_way = three_way
        self._tip = base
        self._stream: CommitStream | None = None
        self._pending: list[tuple[Patch, Fit]] = []
        self._applied: list[Applied] = []
        self._is_all_git = self.tree.prefetch(paths)

    def apply(self, patch: Patch, sections: list[FilePatch] | None) -> None:
        """Apply one patch. Raises `ConflictError` or `FatalError`, and then changes nothing."""
        mismatch = None
        if sections is not None and patch.mail is not None and not self._is_all_git:
            try:
                return self._apply_in_memory(patch, patch.mail, sections)
            except MismatchError as error:
                mismatch = error
            except AskGitError:
                pass
            except BeyondSymlinkError as error:
                raise beyond_symlink(patch, error, self.tree.touched_by.get(error.link)) from error
        return self._apply_with_git(patch, mismatch)

    def _apply_in_memory(self, patch: Patch, mail: Mail, sections: list[FilePatch]) -> None:
        edit, offset = make_edit(self.tree, sections)
        self.tree.apply(edit, patch.name)
        self._open().commit(mail, edit)
        self._pending.append((patch, Fit.OFFSET if offset else Fit.EXACT))

    def _apply_with_git(self, patch: Patch, mismatch: MismatchError | None) -> None:
        self._flush()
        self._session.checkout(self._tip)
        result = self._session.am(patch.raw, three_way=self._three_way)
        made = self._session.commits(self._tip, "HEAD") if result.returncode == 0 else []
        if len(made) != 1:
            conflict = (
                refused_by_git(patch, result, len(made))
                if mismatch is None
                else conflict_error(patch, mismatch, self.tree)
            )
            conflict.is_merged = self._three_way and result.returncode == 0 and not made
            raise conflict
        commit, tree = made[0]
        check_changed(patch, self.tree.reload(self._tip, commit, patch.name))
        fit = Fit.THREE_WAY if b"3-way merge" in result.stdout else Fit.GIT
        if patch.mail is None:
            self._applied.append(Applied(patch, commit, tree, fit))
            self._tip = commit
        else:
            # Which bytes git cuts from an author's name differs between its versions: the tree is
            # git's, the commit is made from the mail like every other.
            self._open().commit_tree(patch.mail, tree)
            self._pending.append((patch, fit))

    def _open(self) -> CommitStream:
        if self._stream is None:
            self._stream = CommitStream(self._session, self._tip)
        return self._stream

    def _flush(self) -> None:
        """End the open stream and take note of its commits: one for each patch, or it stops."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        made = stream.finish()
        if len(made) != len(self._pending):
            raise FatalError(
                f"{len(self._pending)} patches became {len(made)} commits on {self._tip}",
                hint="this is a defect of mxtree; please report it with the series",
                code=ExitCode.COULD_NOT_CHECK,
            )
        for (patch, fit), (commit, tree) in zip(self._pending, made, strict=True):
            self._applied.append(Applied(patch, commit, tree, fit))
            self._tip = commit
        self._pending.clear()

    def finish(self) -> tuple[Applied, ...]:
        """Write what is pending and return everything that was applied."""
        self._flush()
        return tuple(self._applied)

    def close(self) -> None:
        """Let go of a stream that an error left open."""
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None
