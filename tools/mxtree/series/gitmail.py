# SPDX-License-Identifier: Apache-2.0
"""Let git read a mail that this package does not read itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mxtree.errors import FatalError
from mxtree.git import GitError, git
from mxtree.series.mail import Mail, strip_space


def read_with_git(raw: bytes, path: Path, *, scissors: bool = False) -> Mail:
    """Return what `git mailsplit` and `git mailinfo` make of one patch file.

    With ``scissors``, as for a user who has mailinfo.scissors set. ``author`` carries the date as
    written, for display only. Raises `FatalError` naming ``path`` when the file is not exactly one
    mail with an author and a subject.
    """
    with tempfile.TemporaryDirectory(prefix="mxtree-mail-") as folder:
        where = Path(folder)
        try:
            split = ["--mboxrd", "--keep-cr", "-b", "-d4", f"-o{where}"]
            count = int(git("mailsplit", *split, "--", stdin=raw))
        except GitError as error:
            raise _unreadable(path, error.details) from error
        if count != 1:
            raise FatalError(
                f"{path} holds {count} mails; a patch file is one mail",
                hint="put each into a file of its own, and name each in series",
            )
        return _read_one(path, where, "--scissors" if scissors else "--no-scissors")


def _read_one(path: Path, where: Path, scissors: str) -> Mail:
    mail, message, diff = where / "0001", where / "message", where / "diff"
    options = ("-k", "-u", "--encoding=UTF-8", scissors, "--quoted-cr=nowarn")
    try:
        info = git("mailinfo", *options, message, diff, stdin=mail.read_bytes())
    except GitError as error:
        raise _unreadable(path, error.details) from error
    pairs = [line.partition(b": ")[::2] for line in info.split(b"\n") if line]
    subject = b"\n".join(value for name, value in pairs if name == b"Subject")
    # A subject may have several lines, and git ends one from the message with an empty one.
    found = {**dict(pairs), b"Subject": subject.strip()}
    absent = [key for key in ("Author", "Email", "Date", "Subject") if not found.get(key.encode())]
    if absent:
        raise _unreadable(path, [f"git finds no {', '.join(absent)} in its header"])
    return Mail(
        author=b"%s <%s> %s" % (found[b"Author"], found[b"Email"], found[b"Date"]),
        message=strip_space(subject + b"\n\n" + message.read_bytes()),
        diff=diff.read_bytes(),
        diff_line=0,
    )


def _unreadable(path: Path, details: list[str] | tuple[str, ...]) -> FatalError:
    return FatalError(
        f"git cannot read {path} as a patch mail",
        details=details,
        hint="write it with `git format-patch` (flags: docs/reference/patch-format.md)",
    )
