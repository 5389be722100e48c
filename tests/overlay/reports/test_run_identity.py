# SPDX-License-Identifier: Apache-2.0
"""Which run it was: the chain of digests, and what breaks it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from report_support import make_run, texts, write

from mxflux.reports.identity import chain
from mxflux.reports.run_files import read_run
from mxflux.reports.run_report import run_page


def test_the_chain_binds_each_digest_to_those_before(tmp_path: Path) -> None:
    links = {link.name: link for link in chain(read_run(make_run(tmp_path)))}
    assert list(links) == ["tree", "overlay", "recipe", "run"]
    before = ""
    for link in links.values():
        assert link.chained == hashlib.sha256(f"{before}{link.digest}".encode()).hexdigest()
        before = link.chained


def test_the_same_run_has_the_same_identity_and_another_machine_another(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "1"), make_run(tmp_path / "2")
    ends = [chain(read_run(run))[-1].chained for run in (first, second)]
    assert ends[0] == ends[1]
    record = json.loads((second / "run.json").read_text())
    write(second, "run.json", {**record, "world_size": 4})
    assert chain(read_run(second))[-1].chained != ends[0]


def test_a_recipe_that_changed_after_the_run_breaks_the_chain(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text() + "description: other\n")
    links = chain(read_run(run))
    assert links[2].is_broken
    assert links[3].chained is None
    page = run_page(run)
    assert page.tone == "bad"
    assert "not as asked: identity" in page.state
    assert "recipe.yaml is not the one of the run" in texts(page, "Identity")


def test_a_tree_that_was_changed_after_it_was_built_is_marked(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    record = json.loads((run / "run.json").read_text())
    write(run, "run.json", {**record, "tree_modified": True, "patches": {"megatron": ["0001 ff"]}})
    page = run_page(run)
    assert page.tone == "bad"
    assert "changed after it was built" in texts(page, "Identity")
    assert "0001\nff" in texts(page, "Identity")
