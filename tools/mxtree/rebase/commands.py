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

    It sees MXTREE_UPSTREAM, MXTREE_PATCH (the file name) and MXTREE_VERSION (the new one).
    """
    if rebase.exec_command is None:
        return True
    work.move_to(rebase.tip)
    env = os.environ | {
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
    return result.returncode == 0
