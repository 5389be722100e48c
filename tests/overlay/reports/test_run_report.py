# SPDX-License-Identifier: Apache-2.0
"""The report of a run: what it shows, and what it says is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mlperf_support import write_run
from report_support import make_run, texts

from mxflux.reports.command import report_run
from mxflux.reports.curves import curve
from mxflux.reports.errors import ReportError
from mxflux.reports.page import Cell, Page, Section, Table, row
from mxflux.reports.render import to_html, to_markdown
from mxflux.reports.run_curves import by_attempt
from mxflux.reports.run_files import FILES, read_run
from mxflux.reports.run_report import run_page


def test_a_whole_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, fp4="e2m1")
    state, written = report_run(run)
    assert state == "finished; step 120 of 120"
    assert written == [run / "report.html", run / "report.md"]
    html, markdown = (path.read_text() for path in written)
    for text in ("NVTE_FUSED_ATTN", "rank 1 died", "checkpoints/iter_0000100", "as requested",
                 "fused_norm_rope", "optimizer.lr", "2.13.0", "e2m1 on emulated"):  # fmt: skip
        assert text in html, text
        assert text.replace("_", "\\_") in markdown or text in markdown, text
    assert html.count("<figure>") == 4
    assert "<svg" not in markdown


def test_the_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    html = to_html(run_page(make_run(tmp_path)))
    for outside in ("http:", "https:", "<script", "<link", "@import", "url(", "src="):
        assert outside not in html, outside
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_steps_that_were_repeated_count_once_as_they_ended(tmp_path: Path) -> None:
    files = read_run(make_run(tmp_path, noise=0))
    losses = curve(files.events("train"), "loss")
    assert len(losses.x) == 120
    assert max(losses.y) < 9


def test_throughput_counts_an_attempts_own_steps_without_its_first(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    attempts = by_attempt(read_run(run).metrics)
    assert [len(events) for events in attempts] == [69, 61]
    shown = texts(run_page(run), "Throughput")
    assert "68" in shown
    assert "60" in shown
    assert "share of peak" not in shown


def test_evaluations_are_listed_and_the_last_by_timestep(tmp_path: Path) -> None:
    shown = texts(run_page(make_run(tmp_path, noise=0)), "Evaluation")
    assert "1,920" in shown
    assert shown.count("0.479659") == 9


@pytest.mark.parametrize(
    ("losses", "tone"), [((0.7, 0.5), "good"), ((0.7,), "good")], ids=["success", "aborted"]
)
def test_an_mlperf_log_is_summed_up(tmp_path: Path, losses: list[float], tone: str) -> None:
    pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")
    run = make_run(tmp_path)
    write_run(run / "mlperf" / "attempt-2" / "result_0.txt", losses)
    page = run_page(run)
    shown = texts(page, "MLPerf")
    assert page.tone == tone
    assert ("success" if len(losses) > 1 else "aborted") in shown
    assert "mlperf/attempt-2/result_0.txt" in shown


@pytest.mark.parametrize("name", FILES)
def test_each_missing_file_is_named_and_the_rest_is_shown(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, fp4="e2m1")
    (run / name).unlink()
    page = run_page(run)
    assert f"not recorded: {name}" in page.state
    absent = [line for section in page.sections for line in section.absent]
    assert any(f"{name} is missing" in line for line in absent)
    assert f"{name} is missing" in to_html(page)
    assert len(page.sections) == 9


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.json", "{", "Expecting property name"),
        ("census.json", "[]", "holds list, not dict"),
        ("effective.json", "{}", "holds dict, not list"),
        ("recipe.yaml", "a: [", "while parsing"),
        ("metrics.jsonl", '{"event": "train", "st', "1 of 1 lines are not complete"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    run = make_run(tmp_path)
    (run / name).write_text(content)
    files = read_run(run)
    assert said in files.damaged[name]
    assert name in run_page(run).state


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"none of run\.json"):
        read_run(tmp_path)
    with pytest.raises(ReportError, match="does not exist"):
        read_run(tmp_path / "gone")


def test_the_name_of_the_output_says_what_is_written(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert report_run(run, tmp_path / "out" / "a.html")[1] == [
        tmp_path / "out" / "a.html", tmp_path / "out" / "a.md",
    ]  # fmt: skip
    assert report_run(run, tmp_path / "b.md")[1] == [tmp_path / "b.md"]
    with pytest.raises(ReportError, match=r"FILE\.html or FILE\.md"):
        report_run(run, tmp_path / "c.txt")
    (tmp_path / "d.html").mkdir()
    with pytest.raises(ReportError, match="is a folder"):
        report_run(run, tmp_path / "d.html")


def test_nothing_in_a_name_acts_as_mark_up() -> None:
    nasty = "<b>`|*_[x](y)\u202e\x1b"
    table = Table(("key",), (row(Cell(nasty, "code"), nasty),))
    page = Page(nasty, nasty, "bad", (Section(nasty, (nasty,), (table,)),))
    assert "<b>" not in to_html(page)
    markdown = to_markdown(page)
    assert "<b>" not in markdown.replace("`<b>", "")
    assert "\u202e" not in markdown
    assert "\x1b" not in markdown


def test_reports_import_no_torch() -> None:
    code = (
        "import sys, mxflux.reports.command, mxflux.reports.mlperf; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
