# SPDX-License-Identifier: Apache-2.0
"""Negative controls: the test that proves a patch must fail, in the documented way, without it.

``@pytest.mark.control("regex")`` marks such a test. Run plainly the mark does nothing. With
``--control``, on the stock upstream, only marked tests run, and each of them must fail in its call
with an error (``Type: message``) in which the regex is found: that counts as passed. A test that
passes, skips, breaks in its set-up or fails differently counts as failed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

OPTION = "--control"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--control``."""
    parser.addoption(
        OPTION,
        action="store_true",
        help="run the negative controls: on the stock upstream, each marked test must fail as "
        "its control mark says",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark."""
    config.addinivalue_line(
        "markers", "control(pattern): how this test must fail on the stock upstream (--control)"
    )


def is_control_run(config: pytest.Config) -> bool:
    """Whether ``--control`` was given (False where this plugin's options are not loaded)."""
    return bool(config.getoption(OPTION, default=False))


def control_pattern(item: pytest.Item) -> re.Pattern[str] | None:
    """The compiled regex of ``item``'s control mark, a parameter's before its function's.

    Raises:
        pytest.UsageError: the mark has no regex, or one that any message satisfies.
    """
    own = [mark for mark in item.own_markers if mark.name == "control"]
    mark = own[-1] if own else item.get_closest_marker("control")
    return None if mark is None else compile_mark(mark, item.nodeid)


def compile_mark(mark: pytest.Mark, where: str) -> re.Pattern[str]:
    """The regex of a control mark.

    Raises:
        pytest.UsageError: naming ``where``, see ``control_pattern``.
    """
    usage = f"{where}: control(pattern) takes one regex"
    if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str):
        raise pytest.UsageError(usage)
    try:
        pattern = re.compile(mark.args[0])
    except re.error as error:
        raise pytest.UsageError(f"{usage}: {error}") from None
    if pattern.search(""):
        raise pytest.UsageError(f"{usage} that does not match just any message")
    return pattern


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check every mark; in a control run, keep the marked tests only."""
    marked = [item for item in items if control_pattern(item) is not None]
    if is_control_run(config):
        unmarked = [item for item in items if item not in marked]
        config.hook.pytest_deselected(items=unmarked)
        items[:] = marked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In a control run, turn the documented failure into a pass and everything else around."""
    report = yield
    pattern = control_pattern(item) if is_control_run(item.config) else None
    if pattern is not None and (call.when == "call" or not report.passed):
        _judge(report, call, pattern)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An environment runs controls and the zero-patch mode after its tests: of those `-k` and `-m`
    may leave none.
    """
    nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    options = session.config.option
    second = is_control_run(session.config) or os.environ.get("MXFLUX_TE_ZERO_PATCH") == "1"
    if nothing and second and (options.keyword or options.markexpr):
        session.exitstatus = pytest.ExitCode.OK


def _judge(report: pytest.TestReport, call: pytest.CallInfo[Any], pattern: re.Pattern[str]) -> None:
    error = "" if call.excinfo is None else call.excinfo.exconly()
    if call.when == "call" and report.failed and pattern.search(error):
        report.outcome = "passed"
        report.longrepr = None
        report.sections.append(("control", f"failed as documented: {error}"))
    elif report.passed:
        _fail(report, f"control: passes without the patch (must fail with {pattern.pattern!r})")
    elif report.skipped:
        _fail(report, f"control: skipped in {call.when}, so it proves nothing: {error}")
    else:
        where = "" if call.when == "call" else f" in {call.when}"
        _fail(
            report,
            f"control: fails{where}, but not as documented ({pattern.pattern!r} not found in "
            f"{error!r})\n\n{report.longreprtext}",
        )


def _fail(report: pytest.TestReport, message: str) -> None:
    report.outcome = "failed"
    report.longrepr = message
    report.wasxfail = ""  # an xfail mark must not soften the verdict
    del report.wasxfail
