# SPDX-License-Identifier: Apache-2.0
"""./mxtree, the wrapper: real environments of a checkout with a tool that only says what it got."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A build backend in the checkout itself, so that making an environment needs no network.
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "mxtree"
version = "0"
"""

BACKEND = """\
import pathlib, time, zipfile
root = pathlib.Path(__file__).parent

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with (root / "builds").open("a") as log:
        log.write("built\\n")
    while (root / "wait").exists():
        time.sleep(0.05)
    if (root / "broken").exists():
        raise SystemExit("broken on purpose")
    info = "mxtree-0.dist-info"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "mxtree-0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("mxtree.pth", f"{root}/tools\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: mxtree\\nVersion: 0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return "mxtree-0-py3-none-any.whl"

build_wheel = build_editable
"""

TOOL = """\
import os, sys
print(sys.argv[1:], os.environ["MXTREE_PROJECT"], sys.prefix, sep="|")
sys.exit(int(os.environ.get("STATUS", "0")))
"""


def make_checkout(root: Path) -> Path:
    """Make a checkout at ``root``: the real wrapper and bootstrap, and a tool that tells."""
    package = root / "tools" / "mxtree" / "environment"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "mxtree", root)
    shutil.copy(ROOT / "tools/mxtree/environment/bootstrap.py", package)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (package.parent / "__init__.py").touch()
    (package.parent / "__main__.py").write_text(TOOL)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a new checkout in a folder whose name has spaces and a quote."""
    return make_checkout(tmp_path / "it's a check out")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout that has its environment; tests leave it as it is."""
    root = make_checkout(tmp_path_factory.mktemp("made") / "it's a check out")
    result = run(root / "mxtree", "a b", "--c=*", "", STATUS="3")
    expected = f"['a b', '--c=*', '']|{root}|{root}/.venv\n"
    assert (result.returncode, result.stdout) == (3, expected), result.stderr
    assert "(once)" in result.stderr
    return root


def environment(**variables: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MXTREE_")}
    env.pop("PYTHONPATH", None)
    return env | {"MXTREE_PYTHON": sys.executable} | variables


def run(
    program: Path | str, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = environment(**variables)
    command = ["/bin/sh", str(program)] if isinstance(program, str) else [str(program)]
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def builds(checkout: Path) -> int:
    log = checkout / "builds"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_one_environment_however_it_is_called(made: Path, tmp_path: Path) -> None:
    (tmp_path / "absolute").symlink_to(made / "mxtree")
    (tmp_path / "folder").symlink_to(made)
    (tmp_path / "relative link").symlink_to(Path("folder", "mxtree"))
    (tmp_path / "link to a link").symlink_to("relative link")
    # Code that must not be taken for the tool's own.
    trap = tmp_path / "trap"
    (trap / "mxtree").mkdir(parents=True)
    (trap / "mxtree" / "__init__.py").write_text("raise SystemExit('trap')")
    for name in ("absolute", "relative link", "link to a link", "folder/mxtree"):
        result = run(tmp_path / name, "x", cwd=trap, PYTHONPATH=str(trap))
        assert result.stdout == f"['x']|{made}|{made}/.venv\n", name
        assert result.stderr == ""
    assert run("mxtree", cwd=made).stdout.startswith("[]|")
    assert run(made / "mxtree", MXTREE_PROJECT="/other").stdout.startswith("[]|/other|")
    assert builds(made) == 1


def test_it_is_made_again_when_what_it_was_made_from_changes(
    made: Path, tmp_path: Path, nowhere: dict[str, str]
) -> None:
    python = stand_in(tmp_path / "bin" / "python3")
    assert run(made / "mxtree", **nowhere).returncode == 0
    moved = Path(shutil.copytree(made, tmp_path / "copy", symlinks=True))
    assert run(moved / "mxtree", **nowhere).stdout == f"{python}\n", "it has the other's code"
    pyproject = made / "pyproject.toml"
    pyproject.write_text(PYPROJECT + "# changed\n")
    try:
        assert run(made / "mxtree", **nowhere).stdout == f"{python}\n"
    finally:
        pyproject.write_text(PYPROJECT)
    gone = made / ".venv" / "bin" / "python"
    aside = gone.rename(tmp_path / "python")
    try:
        assert run(made / "mxtree", **nowhere).stdout == f"{python}\n"
    finally:
        aside.rename(gone)


def test_killed_while_making_it_and_two_at_once(checkout: Path) -> None:
    (checkout / "wait").touch()
    env = environment()
    killed = subprocess.Popen([checkout / "mxtree"], env=env, start_new_session=True)
    deadline = time.monotonic() + 60
    while builds(checkout) == 0:
        assert time.monotonic() < deadline, "the build did not start"
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (checkout / "wait").unlink()
    both = [
        subprocess.Popen([checkout / "mxtree"], env=env, stdout=subprocess.PIPE) for _ in range(2)
    ]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]
    assert builds(checkout) == 2, "one that was killed, one for both"


def test_a_failed_install_is_an_error_and_does_not_count(checkout: Path) -> None:
    (checkout / "broken").touch()
    result = run(checkout / "mxtree")
    assert result.returncode == 4
    assert "mxtree: error: pip could not install the tool" in result.stderr
    assert "next: check the network" in result.stderr
    assert not (checkout / ".venv" / ".mxtree-ready").exists()


def test_a_folder_of_the_users_is_not_emptied(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    result = run(checkout / "mxtree", MXTREE_VENV=str(tmp_path / "home"))
    assert result.returncode == 2
    assert "is not an environment that mxtree made" in result.stderr
    assert (tmp_path / "home" / "thesis.tex").exists()


def stand_in(path: Path, *, new_enough: bool = True) -> Path:
    """Write a program that answers as a Python does, and says its name instead of bootstrapping."""
    path.parent.mkdir(parents=True, exist_ok=True)
    status = 0 if new_enough else 1
    path.write_text(f'#!/bin/sh\n[ "$2" = -c ] && exit {status}\necho "$0"\nexit 7\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """Return variables under which only what the wrapper itself calls is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sha256sum", "readlink"):
        (folder / name).symlink_to(str(shutil.which(name)))
    variables = ("PYENV_ROOT", "HOME", "XDG_DATA_HOME")
    return {"PATH": str(folder), "MXTREE_PYTHON": ""} | dict.fromkeys(variables, "/nonexistent")


def test_looking_for_a_python_runs_nothing_of_the_working_directory(
    checkout: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("venv", "ensurepip", "logging", "subprocess"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    result = run(checkout / "mxtree", cwd=here)
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "ran").exists()


def test_no_python_at_all(checkout: Path, nowhere: dict[str, str]) -> None:
    result = run(checkout / "mxtree", **nowhere)
    assert result.returncode == 2
    assert result.stderr.startswith("mxtree: error: no Python >= 3.11")
    assert "next: install one" in result.stderr


@pytest.mark.parametrize(
    "place",
    [
        "bin/python3",
        "bin/python3.13",
        "pyenv/versions/3.12.1/bin/python3",
        "uv/python/a/bin/python3",
    ],
)
def test_where_pythons_are_found(
    checkout: Path, nowhere: dict[str, str], tmp_path: Path, place: str
) -> None:
    wanted = stand_in(tmp_path / place)
    # An old one is passed over; so is a shim of pyenv, which fails when its version is not active.
    stand_in(tmp_path / "bin" / "python3.11", new_enough=False)
    variables = {"PYENV_ROOT": str(tmp_path / "pyenv"), "XDG_DATA_HOME": str(tmp_path)}
    result = run(checkout / "mxtree", **(nowhere | variables))
    assert (result.returncode, result.stdout) == (7, f"{wanted}\n")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("/nonexistent/python", "which is not a program"),
        ("old python", "which is no Python >= 3.11"),
    ],
)
def test_a_named_python_is_taken_or_refused_never_passed_over(
    checkout: Path, nowhere: dict[str, str], tmp_path: Path, named: str, message: str
) -> None:
    stand_in(tmp_path / "bin" / "python3")
    stand_in(tmp_path / "old python", new_enough=False)
    result = run(checkout / "mxtree", **(nowhere | {"MXTREE_PYTHON": str(tmp_path / named)}))
    assert result.returncode == 2
    assert message in result.stderr


def test_a_named_python_replaces_the_one_the_environment_has(
    made: Path, nowhere: dict[str, str], tmp_path: Path
) -> None:
    other = stand_in(tmp_path / "other python")
    result = run(made / "mxtree", **(nowhere | {"MXTREE_PYTHON": str(other)}))
    assert (result.returncode, result.stdout) == (7, f"{other}\n")
    assert run(made / "mxtree", **nowhere).returncode == 0, "none is named: any will do"
