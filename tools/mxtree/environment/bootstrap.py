# SPDX-License-Identifier: Apache-2.0
"""Make the environment that the tool itself runs in; ./mxtree runs this by path.

Standard library only: nothing is installed yet. Arguments: checkout, environment, the mark that
says what it is made from, and the Python that makes it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import venv
from pathlib import Path

STARTED = ".mxtree-started"
READY = ".mxtree-ready"


def main(root: Path, folder: Path, wanted: str, python: str) -> int:
    """Make ``folder`` and return the exit status; see mxtree.errors.ExitCode for its meaning."""
    mark = f"{wanted}\n{python}\n"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        # Two first runs at once must not share a half-made environment; the system drops the lock
        # of a process that dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(folder, mark):
            return 0
        if is_foreign(folder):
            what = f"{folder} exists and is not an environment that mxtree made"
            return _fail(2, what, "move it away, or name another: MXTREE_VENV=/path ./mxtree")
        print(f"mxtree: making {folder} with {python} (once)", file=sys.stderr)
        empty(folder)
        venv.create(folder, symlinks=True, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "install", "--quiet", "--editable", str(root)]
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
            what = "pip could not install the tool (its output is above)"
            return _fail(4, what, "check the network and pip's configuration, then run it again")
        (folder / READY).write_text(mark, encoding="utf-8")
    return 0


def is_ready(folder: Path, mark: str) -> bool:
    """Return whether ``folder`` was finished, with this very ``mark``."""
    try:
        found = (folder / READY).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return found == mark and (folder / "bin" / "python").exists()


def is_foreign(folder: Path) -> bool:
    """Return whether ``folder`` holds something that mxtree did not put there."""
    if not folder.exists() or (folder / STARTED).exists():
        return False
    return not folder.is_dir() or any(folder.iterdir())


def empty(folder: Path) -> None:
    """Leave nothing in ``folder`` but the mark that says that it is ours, at every moment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STARTED).touch()
    (folder / READY).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.name == STARTED:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _fail(status: int, message: str, following: str) -> int:
    print(f"mxtree: error: {message}\nnext: {following}", file=sys.stderr)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again", file=sys.stderr)
        sys.exit(130)
