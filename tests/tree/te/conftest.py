# SPDX-License-Identifier: Apache-2.0
"""TE from the tree under test, on the stub of its C++ part and a CPU that answers like a gfx950."""

from __future__ import annotations

import pytest
from support import te_cuda, te_native, te_stub

from mxflux.te import zero_patch

te_stub.install()

#: Of the patches themselves, and no behaviour of the overrides that stand in for them.
OF_PATCHES_ONLY = {
    "test_a_local_version_of_the_same_release_is_accepted": "a stock TE has a release's version",
    "test_a_quantizer_that_writes_out_itself_is_given_it": "the override adds, in fp32",
    "test_without_0002_biases_would_have_no_gradient": "takes a name away that 0002 imports",
    "test_without_the_overlay_the_error_says_what_to_install": "the overrides are the overlay's",
    "test_a_broken_overlay_is_not_called_missing": "the overrides are the overlay's",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In zero-patch mode leave out what only patches do."""
    if zero_patch.enabled():
        out = [i for i in items if getattr(i, "originalname", i.name) in OF_PATCHES_ONLY]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def pytest_report_header() -> list[str]:
    """Whether patches or overrides are under test."""
    if not zero_patch.enabled():
        return []
    left_out = [f"  left out: {name}: {why}" for name, why in OF_PATCHES_ONLY.items()]
    return ["TransformerEngine: stock, in zero-patch mode", *left_out]


@pytest.fixture(autouse=True)
def gfx950(monkeypatch: pytest.MonkeyPatch) -> None:
    """One gfx950-like device for the length of a test, and fresh counts of native calls."""
    te_native.CALLS.clear()
    te_cuda.gfx950(monkeypatch)
