# SPDX-License-Identifier: Apache-2.0
"""A page as one HTML file or as Markdown."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from mxflux import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment

    from .page import Page

# Control characters, and those that make text read in another order than it is stored.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_MARKUP = re.compile(r"[\\`*_~|$\[\]<>]")


def to_html(page: Page) -> str:
    """One HTML file that needs no network and no script."""
    return _environment().get_template("page.html.j2").render(page=page, footer=_footer())


def to_markdown(page: Page) -> str:
    """Markdown with the same tables; the charts are in the HTML."""
    text = _environment().get_template("page.md.j2").render(page=page, footer=_footer())
    return re.sub(r"\n{3,}", "\n\n", text)


def write(path: Path, text: str) -> None:
    """Write a file in one step; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def markdown(text: str) -> str:
    """Text in which nothing acts as mark-up, on one line."""
    return _MARKUP.sub(r"\\\g<0>", _HIDDEN.sub(" ", text)).strip()


def code_span(text: str) -> str:
    """Text as code in a table cell."""
    plain = _HIDDEN.sub(" ", text).replace("|", "\\|")
    fence = "``" if "`" in plain else "`"
    return f"{fence}{plain}{fence}"


def _footer() -> str:
    return f"mxflux {__version__}"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("mxflux.reports"),
        autoescape=select_autoescape(("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"md": markdown, "code": code_span}
    return environment
