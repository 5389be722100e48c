# SPDX-License-Identifier: Apache-2.0
"""The overview of all patches: what waits for upstream, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxtree.tree.overview import lines, overview

if TYPE_CHECKING:
    from mxtree.project import Project

#: The author date of the small project's patches, in seconds.
WRITTEN = 1700000000


def test_age_size_status_and_tests_of_each_patch(project: Project) -> None:
    found = overview(project, now=WRITTEN + 3 * 86400 + 5)
    assert [(item.upstream, item.id, item.age_days) for item in found] == [
        ("megatron-lm", "0001", 3),
        ("transformer-engine", "0001", 3),
    ]
    assert {(item.status, item.changed_lines, item.tests) for item in found} == {("Pending", 2, 1)}
    assert lines(found)[-1] == "2 patches, 4 changed lines"


def test_what_upstream_never_saw_comes_first(project: Project) -> None:
    path = next(project.series_dir("megatron-lm", "1.0").glob("*.patch"))
    path.write_bytes(path.read_bytes().replace(b"Pending", b"Submitted https://example.org/1"))
    assert [item.upstream for item in overview(project)] == ["transformer-engine", "megatron-lm"]
