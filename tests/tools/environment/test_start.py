# SPDX-License-Identifier: Apache-2.0
"""Starting another environment's Python: what it gets to see."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mxtree.environment import start


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ("", None), (":", None), ("/a", "/a"), (":/a::/b:", "/a:/b"), (".", ".")],
)
def test_only_named_folders_stay_on_the_python_path(
    given: str | None, expected: str | None
) -> None:
    found = start.environment({"A": "b"} | ({} if given is None else {"PYTHONPATH": given}))
    assert found.pop("PYTHONPATH", None) == expected
    assert found == {"A": "b", "PYTHONSAFEPATH": "1"}


def test_a_module_runs_as_by_its_name() -> None:
    command = start.module_command(sys.executable, "platform", ["terse", "--"])
    expected = subprocess.run(
        [sys.executable, "-m", "platform", "terse", "--"], capture_output=True, check=True
    )
    assert subprocess.run(command, capture_output=True, check=True).stdout == expected.stdout
