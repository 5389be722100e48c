# SPDX-License-Identifier: Apache-2.0
"""What a run of the tests came to, from tox's result file and pytest's JUnit files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """Outcomes of tests; ``failed`` includes errors of fixtures and of collection."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


@dataclass(frozen=True)
class EnvironmentResult:
    """One tox environment.

    ``tests`` counts pytest's tests, or where there are none the commands that ran. ``controls``
    counts the negative controls. ``setup_seconds`` is the time before the first command.
    """

    name: str
    success: bool
    tests: Counts
    controls: Counts
    setup_seconds: float
    seconds: float

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        return asdict(self)


def read(results: Path, reports: Path) -> list[EnvironmentResult]:
    """Return the environments in the order in which tox ran them; none when it ran none."""
    if not results.is_file():
        return []
    found = json.loads(results.read_text(encoding="utf-8")).get("testenvs", {})
    return [
        _environment(name, facts, reports)
        for name, facts in found.items()
        if "result" in facts and not name.startswith(".")
    ]


def totals(environments: list[EnvironmentResult]) -> Counts:
    """Return all counts added up.

    An environment that failed although none of its tests did, while it was made for example, adds
    one failure: a red run never reads "0 failed".
    """
    total = Counts()
    for environment in environments:
        own = environment.tests + environment.controls
        hidden = not environment.success and own.failed == 0
        total += own + Counts(failed=int(hidden))
    return total


def _environment(name: str, facts: dict[str, Any], reports: Path) -> EnvironmentResult:
    commands = [run for run in facts.get("test", []) if run["run_id"].startswith("commands[")]
    tests = reports / f"{name}.xml"
    seconds = sum(run["elapsed"] for run in commands)
    return EnvironmentResult(
        name=name,
        success=facts["result"]["success"],
        tests=_junit(tests) if tests.is_file() else _commands(commands),
        controls=_junit(reports / f"{name}.control.xml"),
        setup_seconds=max(0.0, facts["result"]["duration"] - seconds),
        seconds=seconds,
    )


def _commands(commands: list[dict[str, Any]]) -> Counts:
    passed = sum(run["retcode"] == 0 for run in commands)
    return Counts(passed, len(commands) - passed)


def _junit(path: Path) -> Counts:
    if not path.is_file():
        return Counts()
    total = Counts()
    root = ET.parse(path).getroot()  # noqa: S314  pytest wrote it a moment ago
    for suite in root.iter("testsuite"):
        ran, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        total += Counts(max(0, ran - failed - skipped), failed, skipped)
    return total
