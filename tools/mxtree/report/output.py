# SPDX-License-Identifier: Apache-2.0
"""Which form a report takes, and where it goes."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from mxtree.errors import ExitCode, FatalError
from mxtree.rebase.store import write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from mxtree.rebase.story import Report


class Format(StrEnum):
    """A form that a report can be written in."""

    MD = "md"
    HTML = "html"
    JSON = "json"


def choose(given: Format | None, output: Path | None) -> Format | None:
    """Return the format asked for, else the one that the file's name means; None for a terminal.

    Raises `FatalError` for a file whose name says nothing.
    """
    if given is not None or output is None:
        return given
    suffix = output.suffix.removeprefix(".").lower()
    suffix = {"markdown": "md", "htm": "html"}.get(suffix, suffix)
    if suffix not in set(Format):
        raise FatalError(
            f"{output.name} does not say in which format the report is wanted",
            hint=f"add --format {'|'.join(Format)}",
        )
    return Format(suffix)


def deliver(report: Report, wanted: Format | None, output: Path | None) -> None:
    """Print the report, or write it to a file: parent folders are made, an old file is replaced.

    Raises `FatalError` when the file cannot be written.
    """
    if wanted is None:
        from mxtree.report.terminal import print_report

        print_report(report)
        return
    text = _rendered(report, wanted)
    if output is None:
        sys.stdout.write(text)
        return
    _write(output, text)
    print(f"written: {output}", file=sys.stderr)


def _rendered(report: Report, wanted: Format) -> str:
    from mxtree.report import render

    if wanted is Format.JSON:
        return render.to_json(report)
    return render.to_html(report) if wanted is Format.HTML else render.to_markdown(report)


def _write(output: Path, text: str) -> None:
    if output.is_dir():
        raise FatalError(f"{output} is a folder", hint="name a file in it with -o")
    try:
        write_durably(output, text.encode("utf-8", "replace"))
    except OSError as error:
        raise FatalError(
            f"{output} cannot be written: {error.strerror}", code=ExitCode.COULD_NOT_CHECK
        ) from error
