# SPDX-License-Identifier: Apache-2.0
"""The list of packages around a tree."""

from __future__ import annotations

from packaging.utils import canonicalize_name

from mxtree.environment import requirements


def test_every_line_has_a_reason() -> None:
    lines = requirements.FILE.read_text("utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in wanted if not line.partition("# ")[2]] == []
    assert len(wanted) == len(requirements.read())


def test_names_are_canonical_and_what_belongs_to_the_machine_is_among_them() -> None:
    names = [requirement.name for requirement in requirements.read()]
    assert names == [canonicalize_name(name) for name in names]
    assert set(names) >= requirements.MACHINE_OWNED


def test_modules() -> None:
    modules = {r.name: requirements.module(r) for r in requirements.read()}
    assert (modules["pyyaml"], modules["torch"]) == ("yaml", "torch")
