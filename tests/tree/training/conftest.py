# SPDX-License-Identifier: Apache-2.0
"""One server of forked ranks for all training tests of a session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parent))

from training_runs import Server, make_run


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture(scope="session")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps on two ranks that nothing interrupted, with all its checkpoints."""
    return server.finish(make_run(tmp_path_factory.mktemp("whole") / "run"))
