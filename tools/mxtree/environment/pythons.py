# SPDX-License-Identifier: Apache-2.0
"""Find Python interpreters: MXTREE_PYTHON, PATH and uv's folder, pyenv's versions, usual places."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from python_discovery import PythonInfo, get_interpreter

from mxtree.environment import start
from mxtree.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Python of the environments that `mxtree install` makes: the training images' version, and the
#: lowest one that megatron-core 0.18.2 declares.
DEFAULT_VERSION = "3.12"

_USUAL_PLACES = (
    "/usr/local/bin",
    "/usr/bin",
    "/opt/python/bin",
    "/opt/homebrew/bin",
    "/opt/conda/bin",
)


def find_python(version: str = DEFAULT_VERSION, env: Mapping[str, str] = os.environ) -> Path:
    """Return a CPython of ``version`` (major.minor), never that of a virtual environment.

    Looks at MXTREE_PYTHON, then PATH and uv's interpreters, then the versions under pyenv's root by
    path (its shims answer only for active versions), then the usual places. Raises `FatalError`
    that names each of them when there is none.
    """
    found = _find(version, env)
    if found is None:
        raise FatalError(
            f"no Python {version} was found",
            details=_searched(version, env),
            hint=f"install one (apt install python{version} python{version}-venv, uv python "
            f"install {version}, pyenv install {version}), or name it: "
            f"MXTREE_PYTHON=/path/to/python{version}",
        )
    return found


def find_some(versions: list[str], env: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return an interpreter for each of ``versions`` that can be found; the others are left out."""
    found = {version: _find(version, env) for version in versions}
    return {version: path for version, path in found.items() if path is not None}


def named_python(env: Mapping[str, str] = os.environ) -> str | None:
    """Return the path that MXTREE_PYTHON names. Raises `FatalError` when it is no program."""
    value = env.get("MXTREE_PYTHON", "").strip()
    if not value:
        return None
    path = shutil.which(value, path=env.get("PATH"))
    if path is None:
        raise FatalError(
            f"MXTREE_PYTHON names {value}, which is not a program",
            hint="unset MXTREE_PYTHON, or set it to the path of a Python interpreter",
        )
    return path


def pyenv_root(env: Mapping[str, str] = os.environ) -> Path:
    """Return pyenv's folder, whether or not it exists."""
    named = env.get("PYENV_ROOT")
    return Path(named) if named else Path(env.get("HOME", "/nonexistent"), ".pyenv")


def _find(version: str, env: Mapping[str, str]) -> Path | None:
    named = named_python(env)
    env = start.without_python_path(env)  # it may name the folder where we are
    found = get_interpreter(f"cpython{version}", [named] if named else [], env=env)
    if found is None:
        found = next(_from_folders(version, env), None)
    return Path(found.system_executable or str(found.executable)) if found else None


def _from_folders(version: str, env: Mapping[str, str]) -> Iterator[PythonInfo]:
    candidates = [*_pyenv_candidates(version, env), *_usual_candidates(version)]
    for candidate in candidates:
        if not os.access(candidate, os.X_OK):
            continue
        info = PythonInfo.from_exe(str(candidate), raise_on_error=False, env=env)
        if info is not None and f"{info.version_info.major}.{info.version_info.minor}" == version:
            yield info


def _pyenv_candidates(version: str, env: Mapping[str, str]) -> list[Path]:
    """Return pyenv's interpreters of ``version``, newest first."""
    folders = (pyenv_root(env) / "versions").glob(f"{version}.*")
    newest_first = sorted(folders, key=lambda path: _numbers(path.name), reverse=True)
    return [folder / "bin" / "python" for folder in newest_first]


def _usual_candidates(version: str) -> list[Path]:
    return [Path(folder, f"python{version}") for folder in _USUAL_PLACES]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _searched(version: str, env: Mapping[str, str]) -> list[str]:
    named = env.get("MXTREE_PYTHON")
    uv_folder = env.get("UV_PYTHON_INSTALL_DIR") or "uv's folder (~/.local/share/uv/python)"
    return [
        f"MXTREE_PYTHON: {f'{named} (another version)' if named else 'not set'}",
        f"PATH: {env.get('PATH') or 'not set'}",
        f"uv: {uv_folder}",
        f"pyenv: {pyenv_root(env) / 'versions' / version}.*",
        f"usual places: {', '.join(_USUAL_PLACES)}",
    ]
