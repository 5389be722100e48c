# SPDX-License-Identifier: Apache-2.0
"""``--exec``: a command of the user's after each patch."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mxtree.rebase.model import Rebase, Step
    from mxtree.rebase.work import Work


def run_exec(work: Work, rebase: Rebase, step: Step) -> bool:
    """Run the command of ``--exec`` in the work tree as it is after ``step``; True when it passes.

    It sees MXTREE_UPSTREAM, MXTREE_PATCH (the file name) and MXTREE_VERSION (the new one), and its
    git works in this tree whatever GIT_DIR and the like say. A command that changes tracked files
    or commits does not pass: going on would throw that away.
    """
    if rebase.exec_command is None:
        return True
    work.move_to(rebase.tip)
    env = {key: value for key, value in os.environ.items() if key not in _local_variables(work)}
    env |= {
        "MXTREE_UPSTREAM": rebase.upstream,
        "MXTREE_PATCH": step.name,
        "MXTREE_VERSION": rebase.new.version,
    }
    result = subprocess.run(  # noqa: S602  the user's own command line, for the user's own shell
        rebase.exec_command,
        shell=True,
        cwd=work.path,
        env=env,
        check=False,
    )
    return result.returncode == 0 and not changed_by_exec(work, rebase)


def changed_by_exec(work: Work, rebase: Rebase) -> list[str]:
    """Return what a command did to commits and tracked files, one line each."""
    head = [f"HEAD is {work.head[:12]} now"] if work.head != rebase.tip else []
    dirty = work.git("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
    return [*head, *dirty.decode("utf-8", "replace").split("\0")[:-1]]


def _local_variables(work: Work) -> set[str]:
    return set(work.text("rev-parse", "--local-env-vars").split())
