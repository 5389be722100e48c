# SPDX-License-Identifier: Apache-2.0
"""The README lists the patches that there are, and links to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxtree.project import Project
from mxtree.series import load_series
from mxtree.upstreams import load_upstreams

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_lists_every_patch_of_the_pinned_series_in_order() -> None:
    project = Project(ROOT)
    expected = []
    for upstream in map(load_upstreams(project).get, load_upstreams(project).names):
        expected.append(f"**{upstream.name} {upstream.default}**")
        series = load_series(project.series_dir(upstream.name, upstream.default))
        expected += [f"{patch.id} {patch.subject}" for patch in series.patches]
    table = README.partition("<!-- patch-table -->")[2].partition("<!-- /patch-table -->")[0]
    rows = [line.split("|")[1].strip() for line in table.strip().splitlines()[2:]]
    assert rows == expected


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(((?!http)[^)#]+)", README))))
def test_a_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
