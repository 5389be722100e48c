# SPDX-License-Identifier: Apache-2.0
"""Finding interpreters."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mxtree.environment.pythons import find_python, find_some, named_python
from mxtree.errors import FatalError

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = Path(sys.base_prefix, "bin", f"python{THIS}").resolve()
NOWHERE = {"PATH": "/nonexistent", "HOME": "/nonexistent"}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_named_interpreter_comes_first(tmp_path: Path) -> None:
    named = tmp_path / "named python"
    named.symlink_to(BASE)
    found = find_python(THIS, {**os.environ, "MXTREE_PYTHON": str(named)})
    assert found.resolve() == BASE


def test_a_virtual_environment_on_path_stands_for_its_base() -> None:
    found = find_python(THIS, {**NOWHERE, "PATH": str(Path(sys.executable).parent)})
    assert found.resolve() == BASE


def test_pyenv_versions_are_found_by_path_although_the_shim_refuses(tmp_path: Path) -> None:
    root = tmp_path / "pyenv"
    script(root / "shims" / "python3.99", "echo 'pyenv: version not installed' >&2; exit 127")
    executable = root / "versions" / f"{THIS}.0" / "bin" / "python"
    executable.parent.mkdir(parents=True)
    executable.symlink_to(BASE)
    env = {"PATH": str(root / "shims"), "PYENV_ROOT": str(root), "HOME": "/nonexistent"}
    assert find_python(THIS, env).resolve() == BASE


def test_what_is_not_found_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(FatalError, match=r"no Python 3\.99 was found") as caught:
        find_python("3.99", NOWHERE)
    details = "\n".join(caught.value.details)
    assert "PATH: /nonexistent" in details
    assert "/nonexistent/.pyenv/versions/3.99" in details
    assert "MXTREE_PYTHON: not set" in details
    assert "MXTREE_PYTHON=" in str(caught.value.hint)


def test_another_version_under_mxtree_python_is_named_as_such() -> None:
    with pytest.raises(FatalError) as caught:
        find_python("3.99", {**NOWHERE, "MXTREE_PYTHON": str(BASE)})
    assert f"MXTREE_PYTHON: {BASE} (another version)" in caught.value.details


def test_mxtree_python_that_is_no_program_is_an_error() -> None:
    with pytest.raises(FatalError, match="names /nonexistent/python, which is not a program"):
        named_python({**NOWHERE, "MXTREE_PYTHON": "/nonexistent/python"})


def test_some_leaves_out_what_is_not_there() -> None:
    env = {**NOWHERE, "PATH": str(BASE.parent)}
    assert list(find_some([THIS, "3.99"], env)) == [THIS]
