# SPDX-License-Identifier: Apache-2.0
"""Start another environment's Python so that it imports nothing of the working directory.

Not with -I: what it shall see may be on PYTHONPATH or among the user's own packages. Nor with -P:
Python 3.10 does not know it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: To be the first statement after ``-c``, which puts an empty name first on sys.path.
NOT_HERE = "import sys; sys.path[:] = filter(None, sys.path)"
_RUN = f"{NOT_HERE}; import runpy; runpy.run_module(sys.argv.pop(1), None, '__main__', True)"


def module_command(python: Path | str, module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command for ``python -m module arguments``."""
    return [str(python), "-c", _RUN, module, *arguments]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``environ`` with a PYTHONPATH that names folders only; its own Pythons do as it does.

    An empty part of it, as in ``PYTHONPATH=/a:$PYTHONPATH``, means the working directory.
    """
    folders = os.pathsep.join(filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))
    kept = without_python_path(environ) | ({"PYTHONPATH": folders} if folders else {})
    return kept | {"PYTHONSAFEPATH": "1"}


def without_python_path(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``environ`` for a Python that shall see what is installed and nothing else."""
    return {name: value for name, value in environ.items() if name != "PYTHONPATH"}
