# SPDX-License-Identifier: Apache-2.0
"""TE on a GPU: the compiled one, or with MXFLUX_TE=stub its Python alone on the stub of its C++.

PYTHONPATH=overlay:<site with the patched TE>[:<patched megatron>] pytest tests/gpu/te
PYTHONPATH=overlay:<site with stock TE> pytest tests/gpu/te --control
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

TREE = Path(__file__).resolve().parents[2] / "tree"
for path in (TREE / "flux", TREE):
    sys.path.insert(0, str(path))

from support.control import (  # noqa: E402, F401  hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
)

MODES = ("compiled", "stub")


def mode() -> str:
    """compiled or stub.

    Raises:
        pytest.UsageError: MXFLUX_TE is neither.
    """
    found = os.environ.get("MXFLUX_TE", MODES[0])
    if found not in MODES:
        raise pytest.UsageError(f"MXFLUX_TE={found!r}; valid: {', '.join(MODES)}")
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Third-party warnings at import are not ours to fix."""
    for category in ("DeprecationWarning", "FutureWarning", "UserWarning", "RuntimeWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{category}")


if mode() == "stub":
    from support import te_stub

    te_stub.install()
else:
    from mxflux.te import zero_patch

    if zero_patch.wanted():
        # It imports TE before pytest has read the filters of pytest_configure.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zero_patch.enable()


def pytest_report_header() -> list[str]:
    """Which TE is under test."""
    return [f"TransformerEngine: {mode()}"]


@pytest.fixture
def native_gemms(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of TE's own GEMM, which then runs."""
    import transformer_engine_torch as tex

    calls: Counter[str] = Counter()
    native = tex.generic_gemm

    def counted(*args: object, **options: object) -> object:
        calls["generic_gemm"] += 1
        return native(*args, **options)

    monkeypatch.setattr(tex, "generic_gemm", counted)
    return calls


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
