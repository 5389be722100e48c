# SPDX-License-Identifier: Apache-2.0
"""Text into nodes with places: variables, and everything a recipe file may not have."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mxflux.recipe.reader import Reader


def read(text: str, environ: Mapping[str, str] | None = None) -> tuple[object, list[str]]:
    """Plain value and faults."""
    reader = Reader(text, "r.yaml", environ or {})
    root = reader.read()
    return None if root is None else root.plain(), [str(problem) for problem in reader.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ${N}", 7),
        ("a: ${RATE}", 2e-4),
        ('a: "${N}"', "7"),
        ("a: ${N}x", "7x"),
        ("a: ${UNSET:3}", 3),
        ("a: ${UNSET:}", None),
        ("a: ${EMPTY:5}", 5),
        ("a: ${UNSET:/data/x y}", "/data/x y"),
        ("a: $$HOME", "$HOME"),
        ("a: $$${N}", "$7"),
        ("a: $5", "$5"),
        ('a: ["${N}", 1]', ["7", 1]),
    ],
)
def test_variables_are_typed_as_if_written(text: str, value: object) -> None:
    found, problems = read(text, {"N": "7", "RATE": "2e-4", "EMPTY": ""})
    assert problems == []
    assert found == {"a": value}


def test_a_variable_is_part_of_the_origin() -> None:
    root = Reader("a: ${N}\nb: [1, '${N}']\n", "r.yaml", {"N": "7"}).read()
    assert root is not None
    assert {key: str(node.origin) for key, node in root.leaves()} == {
        "a": "r.yaml:1 $N",
        "b": "r.yaml:2 $N",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: ${UNSET}", "r.yaml:1:4: the environment variable UNSET is not set (export UNSET=..."),
        ("a: ${EMPTY}", "r.yaml:1:4: the environment variable EMPTY is empty"),
        ("a: ${A:${B:x}}", "r.yaml:1:4: '${A:${B:x}}' has a ${ that names no variable"),
        ("a: ${1X}", "r.yaml:1:4: '${1X}' has a ${ that names no variable"),
        ("a: [${N}]", "r.yaml:1:6: not YAML: while parsing a flow sequence"),
        ("a: 1\nb: 2\na: 3", "r.yaml:3:1: duplicate key 'a': lines 1 and 3 (keep one of them)"),
        ("s:\n  a: 1\n  a: 1", "r.yaml:3:3: duplicate key 'a': lines 2 and 3"),
        ("a: !!str 5", "r.yaml:1:4: tags (!) are not read"),
        ("a: &x 5\nb: *x", "r.yaml:1:4: anchors and aliases (&x) are not read"),
        ("a: &x {b: *x}", "r.yaml:1:4: anchors and aliases (&x) are not read"),
        ("<<: {a: 1}", "r.yaml:1:1: a key must be a word (use base: to inherit)"),
        ("[1]: 2", "r.yaml:1:1: a key must be a word"),
        ("a: 'x", "r.yaml:1:6: not YAML: while scanning a quoted scalar"),
        ("a:\n\tb: 1", "r.yaml:2:1: not YAML"),
        ("a: 1\n---\nb: 2", "r.yaml:2:1: not YAML"),
        ("a: \x00", "r.yaml:1:1: not YAML"),
    ],
)
def test_faults_have_a_place(text: str, fault: str) -> None:
    _, problems = read(text, {"EMPTY": "", "N": "7"})
    assert problems, "no fault was found"
    assert problems[0].startswith(fault)


def test_a_variable_in_brackets_gets_a_hint() -> None:
    _, problems = read("a: [${N}]", {"N": "7"})
    assert problems[0].endswith("(inside [ ] and { } a variable must stand in quotes)")


def test_all_faults_of_a_text_in_one_pass() -> None:
    _, problems = read("a: ${U}\na: 1\nb: !!int 3\nc: &x 1\n")
    assert [problem.split(":")[1] for problem in problems] == ["1", "2", "3", "4"]
