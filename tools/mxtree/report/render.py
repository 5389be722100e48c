# SPDX-License-Identifier: Apache-2.0
"""A report as Markdown, HTML or JSON."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from mxtree import __version__
from mxtree.report import escape, graph
from mxtree.report.classes import MEANING
from mxtree.report.drawing import draw
from mxtree.report.view import view_of

if TYPE_CHECKING:
    from mxtree.rebase.story import Report
    from mxtree.report.view import ReportView

#: GitHub refuses a pull request text with more characters; the rest of the budget is the reader's.
MARKDOWN_LIMIT = 65_536
_RESERVE = 2_000


def to_json(report: Report) -> str:
    """Return the model as it is kept."""
    return report.model_dump_json(indent=2) + "\n"


def to_html(report: Report) -> str:
    """Return one HTML file that needs no network and no script."""
    return _environment().get_template("rebase.html.j2").render(_context(report))


def to_markdown(report: Report) -> str:
    """Return Markdown that fits into the text of a GitHub pull request.

    What is cut of a long range-diff is said in its place.
    """
    template = _environment().get_template("rebase.md.j2")
    view = view_of(report)
    bare = template.render(_context(report, view), budget=0)
    return template.render(_context(report, view), budget=_budget(view, len(bare)))


def _budget(view: ReportView, taken: int) -> int:
    """Return how many characters each range-diff may have."""
    return max(0, MARKDOWN_LIMIT - _RESERVE - taken) // max(1, len(view.stories))


def cut(text: str, budget: int) -> tuple[str, int]:
    """Return the first whole lines of a text within a budget, and how many lines are left out."""
    lines = escape.visible(text).rstrip("\n").split("\n")
    size, kept = 0, 0
    for line in lines:
        size += len(line) + 1
        if size > budget:
            break
        kept += 1
    return "\n".join(lines[:kept]), len(lines) - kept


def _context(report: Report, view: ReportView | None = None) -> dict[str, object]:
    return {"report": view or view_of(report), "meaning": MEANING, "version": __version__}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mxtree.report"),
        autoescape=select_autoescape(("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"mermaid": graph.mermaid, "dot": graph.dot, "draw": draw, "cut": cut}
    environment.filters |= {
        "md": escape.markdown,
        "code": escape.code_span,
        "fence": escape.fence,
        "visible": escape.visible,
        "line": escape.one_line,
    }
    return environment
