# SPDX-License-Identifier: Apache-2.0
"""Run tox with the interpreters that we find, and keep what it and pytest leave behind."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxtree.environment.capacity import environments_at_once
from mxtree.environment.pythons import DEFAULT_VERSION, find_python, find_some
from mxtree.errors import ExitCode, FatalError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Pythons of the environments in tox.ini; those that are not there are missed only when needed.
KNOWN_VERSIONS = ("3.11", "3.12")

# Sub-commands of tox that run environments; the others (list, config, ...) leave no results.
_RUNNING = frozenset({"run", "r", "run-parallel", "p"})
_OTHER = frozenset(
    {"config", "c", "depends", "de", "devenv", "d", "exec", "e", "legacy", "le", "list", "l"}
    | {"man", "quickstart", "q", "schema"}
)
_SELECTING = ("-e", "-m", "--label", "-f")

# What a tox around this one says of itself; and PYTHONPATH, which would hide what is installed.
_NOT_PASSED_ON = frozenset({"TOX_ENV_DIR", "TOX_ENV_NAME", "TOX_WORK_DIR", "PYTHONPATH"})

# How tox ends on unknown arguments, an unknown environment or a faulty tox.ini: -2, as a byte.
_USAGE_STATUS = 254


@dataclass(frozen=True)
class ToxRun:
    """How tox ended; ``results`` does not exist when it ran no environment."""

    status: int
    results: Path
    reports: Path


def run_tox(root: Path, arguments: Sequence[str], *, quiet_stdout: bool = False) -> ToxRun:
    """Run tox in ``root`` with the user's ``arguments``; its output goes where ours goes.

    ``quiet_stdout`` sends all of it to stderr. Raises `FatalError` when a Python that is asked for
    by name cannot be found.
    """
    if not (root / "tox.ini").is_file():
        raise FatalError(f"{root} has no tox.ini", hint="run the tests from a checkout of mxtree")
    work = _work_dir(root, arguments)
    run = ToxRun(0, work / "results.json", work / "reports")
    shutil.rmtree(run.reports, ignore_errors=True)
    run.results.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "tox", *_with_results(list(arguments), run.results)]
    env = _environment(arguments)
    stdout = sys.stderr if quiet_stdout else None
    with subprocess.Popen(command, cwd=root, env=env, stdout=stdout) as process:
        status = _wait(process)
    return ToxRun(status, run.results, run.reports)


def exit_code(status: int, *, ran: bool) -> ExitCode:
    """Return our exit code for tox's ``status``; ``ran`` says whether any environment ran."""
    if status == 0:
        return ExitCode.OK
    if ran:
        return ExitCode.CHECK_FAILED
    return ExitCode.USAGE if status == _USAGE_STATUS else ExitCode.COULD_NOT_CHECK


def wanted_pythons(arguments: Sequence[str]) -> list[str]:
    """Return the Python versions without which tox cannot do what ``arguments`` say.

    Those that environment names mention (py312-...), and where none are named that of the default
    environments.
    """
    own = list(arguments)[: arguments.index("--") if "--" in arguments else None]
    named = re.findall(r"\bpy3(\d+)\b", " ".join(own))
    if named or any(word.startswith(_SELECTING) for word in own):
        return sorted({f"3.{minor}" for minor in named})
    return [] if own and own[0] in _OTHER else [DEFAULT_VERSION]


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for tox, which gets the terminal's ^C too, to end its environments in its own way."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise


def _with_results(arguments: list[str], results: Path) -> list[str]:
    """Return ``arguments`` with our default sub-command, our --label and the file of results.

    Several environments run side by side where the machine has room; with a sub-command or -p of
    their own they run as the user says.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = ["-m" if word == "--label" else word for word in arguments[:end]]
    if own and own[0] in _OTHER:
        return [*own, *arguments[end:]]
    asks_parallel = any(word.startswith(("-p", "--parallel")) for word in own)
    side_by_side = environments_at_once() if _selects_several(own) else 1
    if own and own[0] in _RUNNING:
        command, rest = own[0], own[1:]
    elif asks_parallel or side_by_side == 1:
        command, rest = "run-parallel" if asks_parallel else "run", own
    else:
        command, rest = "run-parallel", ["--parallel", str(side_by_side), *own]
    return [command, "--result-json", str(results), *rest, *arguments[end:]]


def _selects_several(own: Sequence[str]) -> bool:
    """Whether more than one environment may be asked for: all but one name after -e."""
    named = [after for word, after in itertools.pairwise(own) if word == "-e"]
    named += [word[2:] for word in own if re.match(r"-e.", word)]
    return len(named) != 1 or "," in named[0] or "{" in named[0] or named[0] == "ALL"


def _work_dir(root: Path, arguments: Sequence[str]) -> Path:
    """Return where tox keeps its environments; tox.ini puts pytest's reports there."""
    words = list(arguments)
    named = words[words.index("--workdir") + 1 :][:1] if "--workdir" in words else []
    return root.joinpath(*named or [".tox"])


def _environment(arguments: Sequence[str]) -> dict[str, str]:
    wanted = wanted_pythons(arguments)
    found = {version: find_python(version) for version in wanted}
    found |= find_some([version for version in KNOWN_VERSIONS if version not in found])
    env = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED_ON}
    discover = [os.environ.get("TOX_DISCOVER", ""), *map(str, found.values())]
    return env | {"TOX_DISCOVER": "\n".join(filter(None, discover))}
