# SPDX-License-Identifier: Apache-2.0
"""The ``--source`` option of the commands that bring upstreams in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.upstreams import Source, load_upstreams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mxtree.project import Project


def parse_sources(project: Project, options: Sequence[str]) -> dict[str, Source]:
    """Return the source of each upstream that ``[UPSTREAM=]SOURCE`` options name.

    An option for one upstream wins over one for all. Raises `FatalError` on an unknown upstream or
    source.
    """
    upstreams = load_upstreams(project)
    for_all: dict[str, Source] = {}
    for_one: dict[str, Source] = {}
    for option in options:
        name, separator, spec = option.partition("=")
        # `git:URL?a=b` is for all upstreams: an upstream's name has no colon.
        if separator and ":" not in name:
            for_one[upstreams.get(name).name] = Source.parse(spec)
        else:
            for_all |= dict.fromkeys(upstreams.names, Source.parse(option))
    return for_all | for_one
