# SPDX-License-Identifier: Apache-2.0
"""Tests that make sense on some releases of an upstream only, left out by name where they do not.

``@pytest.mark.upstream("transformer-engine>=2.16", reason="roles carry names from there on")``
keeps a test, or a ``pytest.param``, for the releases that fulfil the requirement. Elsewhere it is
deselected, and the end of the run lists requirement, reason and number of tests. With
``control_only=True`` that holds for --control alone: the test is for every release, but others have
no defect that it could fail on. The version is that of the tree under test: its package metadata
comes first on the path.
"""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import InvalidRequirement, Requirement

from support.control import is_control_run

if TYPE_CHECKING:
    from collections.abc import Iterator

UPSTREAMS = {"megatron-lm": "megatron-core", "transformer-engine": "transformer-engine"}
_LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark."""
    config.addinivalue_line(
        "markers",
        "upstream(requirement, reason=..., control_only=False): releases of an upstream that the "
        "test is for, such as 'transformer-engine>=2.16'",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not for the releases under test."""
    reasons = [(item, "; ".join(misfits(item))) for item in items]
    config.hook.pytest_deselected(items=[item for item, why in reasons if why])
    items[:] = [item for item, why in reasons if not why]
    config.stash[_LEFT_OUT] = Counter(why for _, why in reasons if why)


def misfits(item: pytest.Item) -> Iterator[str]:
    """The requirements of `item` that the releases under test do not fulfil, with their reasons.

    Raises:
        pytest.UsageError: a mark without reason, of an unknown upstream, or not a requirement.
    """
    for mark in item.iter_markers("upstream"):
        usage = f"{item.nodeid}: upstream(requirement, reason=...) takes one of {list(UPSTREAMS)}"
        options = dict(mark.kwargs)
        control_only, reason = options.pop("control_only", False), options.pop("reason", "")
        if len(mark.args) != 1 or options or not reason:
            raise pytest.UsageError(usage)
        if control_only and not is_control_run(item.config):
            continue
        try:
            wanted = Requirement(mark.args[0])
        except InvalidRequirement as error:
            raise pytest.UsageError(f"{usage}: {error}") from None
        if wanted.name not in UPSTREAMS:
            raise pytest.UsageError(f"{usage}, not {wanted.name!r}")
        found = version_of(wanted.name)
        if not wanted.specifier.contains(found, prereleases=True):
            yield f"for {wanted}, this is {found}: {reason}"


def version_of(upstream: str) -> str:
    """The version of `upstream` that an import would give.

    Raises:
        pytest.UsageError: nothing on the path says it.
    """
    try:
        return importlib.metadata.version(UPSTREAMS[upstream])
    except importlib.metadata.PackageNotFoundError as error:
        raise pytest.UsageError(f"no package metadata of {upstream} on the path") from error


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was left out and why, also with -q."""
    for why, count in sorted(config.stash.get(_LEFT_OUT, Counter()).items()):
        terminalreporter.write_line(f"left out, {count} tests {why}")
