# SPDX-License-Identifier: Apache-2.0
"""kill -9 at any moment, and two runs at once: the next run finds the old state or the new one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from local_index import Fault
from processes import start
from workshop import SDIST

from mxtree.upstreams import Imported, Source, ensure_imported

if TYPE_CHECKING:
    from pathlib import Path

    from local_index import LocalIndex
    from workshop import Workshop

# The real git, with a kill -9 of mxtree before, after, or in the middle of one of its commands.
_SHIM = """\
#!/bin/sh
for arg in "$@"; do
    if [ "$arg" = "{command}" ] && mkdir "{once}" 2>/dev/null; then
        case {moment} in
            before) kill -9 $PPID; exit 1 ;;
            after) "{git}" "$@"; kill -9 $PPID; exit 1 ;;
            halfway) head -c 100000 | "{git}" "$@"; kill -9 $PPID; exit 1 ;;
        esac
    fi
done
exec "{git}" "$@"
"""


def bring(workshop: Workshop) -> Imported:
    return ensure_imported(workshop.project, workshop.upstream(), "1.0", Source("index"))


def fsck(repo: Path) -> None:
    subprocess.run(["git", "-C", str(repo), "fsck", "--full", "--strict"], check=True)


def test_a_killed_download_is_taken_up_again(
    workshop: Workshop, index: LocalIndex, cache: Path
) -> None:
    index.faults.append(Fault(stall_after=100_000))
    with start(workshop, "fetch", "tiny"):
        assert index.stalled.wait(30)
        part = wait_for(cache, "*.part", 60_000)
    assert not (cache / "upstreams").exists()
    kept = part.stat().st_size
    assert 60_000 <= kept <= 100_000
    assert bring(workshop).downloaded == len(SDIST) - kept
    assert index.file_requests()[-1][1] == f"bytes={kept}-"


def wait_for(folder: Path, pattern: str, size: int) -> Path:
    """Return the file that matches once it has the size; gives up after 30 s."""
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        found = [path for path in folder.rglob(pattern) if path.stat().st_size >= size]
        if found:
            return found[0]
        time.sleep(0.01)
    pytest.fail(f"no {pattern} of {size} bytes below {folder}")


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("init", "before"),
        ("init", "after"),
        ("config", "after"),
        ("fast-import", "before"),
        ("fast-import", "halfway"),
        ("fast-import", "after"),
        ("update-ref", "before"),
        ("update-ref", "after"),
    ],
)
def test_a_killed_import_starts_over(
    workshop: Workshop, index: LocalIndex, cache: Path, tmp_path: Path, command: str, moment: str
) -> None:
    git = shutil.which("git")
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    once = tmp_path / "once"
    shim.write_text(_SHIM.format(command=command, moment=moment, git=git, once=once))
    shim.chmod(0o755)
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    with start(workshop, "fetch", "tiny", env={"PATH": path}) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert once.is_dir()
    found = bring(workshop)
    assert found.tree == workshop.pins["tiny"]["tree"]
    assert not found.cached
    assert found.downloaded is None
    repo = cache / "upstreams" / "tiny.git"
    fsck(repo)
    show = ["git", "-C", str(repo), "rev-parse", "v1.0"]
    said = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    assert said.strip() == found.commit
    assert bring(workshop).cached
    assert not list((cache / "upstreams").glob("*.new-*"))


def test_locks_that_a_killed_git_left_do_not_stop_the_next_run(
    workshop: Workshop, index: LocalIndex, cache: Path
) -> None:
    first = bring(workshop)
    repo = cache / "upstreams" / "tiny.git"
    ref = repo / "refs" / "mxtree" / "index" / workshop.pins["tiny"]["sha256"]
    ref.unlink()
    ref.with_name(ref.name + ".lock").write_text("")
    (repo / "refs" / "tags" / "v1.0.lock").write_text("")
    left = repo / "objects" / "pack" / "tmp_pack_abcdef"
    left.write_bytes(b"half a pack")
    os.utime(left, (0, 0))
    assert bring(workshop).commit == first.commit
    assert not left.exists()
    fsck(repo)


def test_two_processes_at_once_share_one_download(workshop: Workshop, index: LocalIndex) -> None:
    found = []
    with ExitStack() as stack:
        command = (workshop, "fetch", "tiny", "round", "--json")
        for process in [stack.enter_context(start(*command)) for _ in range(3)]:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            found.append(json.loads(out))
    assert len(index.file_requests()) == 2
    assert len({item["commit"] for results in found for item in results}) == 2
    assert sum(item["downloaded"] or 0 for results in found for item in results) > len(SDIST)


def test_interrupting_is_said_and_leaves_nothing_half_done(
    workshop: Workshop, index: LocalIndex
) -> None:
    index.faults.append(Fault(stall_after=100_000))
    with start(workshop, "fetch", "tiny") as process:
        assert index.stalled.wait(30)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert bring(workshop).tree == workshop.pins["tiny"]["tree"]
