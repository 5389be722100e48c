# SPDX-License-Identifier: Apache-2.0
"""The field Proven-By: tests that exist and carry a negative control."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

from mxtree.lint.place import located_fields
from mxtree.series import Problem
from mxtree.series.fields import split_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mxtree.series import Patch

_TEST_ID = re.compile(
    r"(?P<file>tests/[\w./-]+\.py)::(?:(?P<group>\w+)::)?(?P<test>test_\w+)(?:\[.+\])?"
)
_CONTROL = "control"


def check_proofs(patch: Patch, root: Path) -> Iterator[Problem]:
    """Yield every test id that is malformed, names no test, or names one without a control."""
    for field in located_fields(patch):
        if field.name == "Proven-By":
            for test_id in split_list(field.value):
                wrong = _wrong(test_id, root)
                if wrong is not None:
                    yield Problem(patch.path, field.line, *wrong)


def _wrong(test_id: str, root: Path) -> tuple[str, str, str] | None:
    match = _TEST_ID.fullmatch(test_id)
    if match is None or ".." in match["file"].split("/"):
        fix = "write tests/.../test_x.py::test_name, with commas between several"
        return f"{test_id!r} is no test id", fix, "proof-form"
    path = root / match["file"]
    if not path.is_file():
        return f"{test_id}: there is no {match['file']}", "correct the path", "proof-missing"
    tests = _tests_of(path)
    if isinstance(tests, str):
        return f"{test_id}: {tests}", "correct the file", "proof-missing"
    name = "::".join(filter(None, (match["group"], match["test"])))
    if name not in tests:
        message = f"{test_id}: {match['file']} has no {name}"
        return message, "correct the name, or write the test", "proof-missing"
    if not tests[name]:
        message = f"{test_id} has no negative control"
        fix = '@pytest.mark.control("how the stock upstream fails")'
        return message, f"mark it {fix}", "proof-control"
    return None


@cache
def _tests_of(path: Path) -> dict[str, bool] | str:
    """Return whether each test of a file has the control marker, or why it cannot be read."""
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    everywhere = _module_marks(module)
    found = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = everywhere or _is_marked(node)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    marked = everywhere or _is_marked(node) or _is_marked(inner)
                    found[f"{node.name}::{inner.name}"] = marked
    return found


def _is_marked(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Return whether a decorator is, or holds (as parametrize may), the control marker."""
    return any(_mentions_control(decorator) for decorator in node.decorator_list)


def _module_marks(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id == "pytestmark" for name in node.targets)
        and _mentions_control(node.value)
        for node in module.body
    )


def _mentions_control(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Attribute)
        and inner.attr == _CONTROL
        and isinstance(inner.value, ast.Attribute)
        and inner.value.attr == "mark"
        for inner in ast.walk(node)
    )
