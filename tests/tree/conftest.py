# SPDX-License-Identifier: Apache-2.0
"""Negative controls, releases, and the proof that the tree under test runs (see support/)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parent))

from support import control, origin, versions
from support.control import (  # noqa: F401  hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)


def pytest_configure(config: pytest.Config) -> None:
    """The upstreams' own warnings are not ours to fix; all others stay errors."""
    control.pytest_configure(config)
    config.pluginmanager.register(versions, "upstream-versions")
    for category in ("DeprecationWarning", "FutureWarning", "UserWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}:megatron")
    argparse_kwargs = "'(type|choices|metavar)' is deprecated as of Python 3.12"
    config.addinivalue_line("filterwarnings", f"ignore:{argparse_kwargs}:DeprecationWarning")


def pytest_report_header() -> list[str]:
    """Say which code is under test."""
    return origin.describe()


def pytest_sessionstart() -> None:
    """Stop before the first test when another tree would be tested."""
    try:
        origin.check_importable()
    except origin.WrongTreeError as error:
        pytest.exit(str(error), returncode=4)


@pytest.fixture(autouse=True)
def _code_under_test() -> Iterator[None]:
    """Fail the test that made the process import other code than the tree's."""
    yield
    origin.check_imported()
