# SPDX-License-Identifier: Apache-2.0
"""The reference: what `git am` makes of a series in a work tree of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mxtree.git import git, run_git
from mxtree.series import Patch
from mxtree.series.borrow import BorrowedObjects
from mxtree.series.canonical import FORMAT_PATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Spelled out here, not imported: the reference must not follow a mistake of the engine.
AM = (
    *("am", "-q", "--patch-format=mboxrd", "--keep", "--keep-cr", "--quoted-cr=nowarn"),
    *("--no-scissors", "--empty=keep", "--committer-date-is-author-date", "--no-gpg-sign"),
)


def git_am(
    repo: Path, base: str, raws: Iterable[bytes], *, three_way: bool = False
) -> tuple[list[tuple[str, str]], str]:
    """Apply the mails in one `git am`; return (commit, tree) of each that applied, and stderr.

    ``repo`` is bare and is left as it is.
    """
    folder = Path(tempfile.mkdtemp(prefix="reference-"))
    try:
        git("init", "--quiet", "--template=", folder)
        # Blobs are compared, so no attribute of the tree may convert them on their way.
        (folder / ".git" / "info").mkdir(exist_ok=True)
        (folder / ".git" / "info" / "attributes").write_text("* -text !eol !filter !ident\n")
        alternates = folder / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{repo / 'objects'}\n")
        git("checkout", "--quiet", "--detach", base, cwd=folder)
        merge = "--3way" if three_way else "--no-3way"
        mbox = b"".join(raws)
        result = run_git(*AM, merge, cwd=folder, stdin=mbox, ok=range(256)) if mbox else None
        out = git("log", "--reverse", "--format=%H %T", f"{base}..HEAD", cwd=folder)
        rows = [line.split(" ") for line in out.decode("ascii").splitlines()]
        said = result.stderr.decode("utf-8", "replace") if result else ""
        return [(commit, tree) for commit, tree in rows], said
    finally:
        shutil.rmtree(folder)


def format_otherwise(repo: Path, base: str, tip: str, *options: str) -> list[bytes]:
    """Return the commits as patches that somebody else wrote: with more options than ours."""
    separator = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
    with BorrowedObjects(repo) as private:
        out = private.git("format-patch", *FORMAT_PATCH, *options, "--stdout", f"{base}..{tip}")
    return [separator + part for part in out.split(separator)[1:]]


def as_patches(raws: Sequence[bytes], folder: Path | None = None) -> list[Patch]:
    """Return patches with made-up names; written to ``folder`` with a list when given."""
    where = folder or Path("patches/upstream/1.0")
    names = [f"{number:04d}-change.patch" for number in range(1, len(raws) + 1)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "series").write_text("".join(f"{name}\n" for name in names))
        for name, raw in zip(names, raws, strict=True):
            (folder / name).write_bytes(raw)
    return [Patch(where / name, name[:4], name, raw) for name, raw in zip(names, raws, strict=True)]
