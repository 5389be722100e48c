# SPDX-License-Identifier: Apache-2.0
"""The report of a run: what it shows, what it finds wrong, and what it says is missing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlperf_support import write_run
from report_support import LINEARS, census, effective, gate, make_run, write

from mxflux.mx.high import LABELS
from mxflux.reports.command import report_run
from mxflux.reports.curves import Curve, curve, smoothed, spread, thinned
from mxflux.reports.errors import ReportError
from mxflux.reports.identity import chain
from mxflux.reports.page import Cell, Page, Section, Table, row
from mxflux.reports.precision_table import direction_rows, requested_formats
from mxflux.reports.render import to_html, to_markdown
from mxflux.reports.run_curves import by_attempt
from mxflux.reports.run_files import FILES, read_run
from mxflux.reports.run_report import run_page
from mxflux.reports.svg import Line, chart, number, ticks


def texts(page: Page, title: str) -> str:
    """Everything that a section says."""
    (section,) = [s for s in page.sections if s.title == title]
    cells = [cell.text for table in section.tables for cells in table.rows for cell in cells]
    return "\n".join([*section.text, *section.absent, *cells])


# -- what it shows --------------------------------------------------------------------------


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


# -- identity -------------------------------------------------------------------------------


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


# -- what is wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [census("bf16"), census("e2m1/e4m3"), census("e2m1", LINEARS[:1]), {"expected": []}]
)
def test_another_precision_than_asked_for_is_marked(tmp_path: Path, wrong: dict) -> None:
    run = make_run(tmp_path, fp4="e2m1")
    write(run, "census.json", wrong)
    page = run_page(run)
    assert page.tone == "bad"
    assert "precision" in page.state
    assert "differs" in texts(page, "Precision")


def counted(forward: str, backward: str, by: str) -> dict[str, Any]:
    """census.json of linears whose backward GEMMs are not like the forward's."""
    found = census(backward)
    for linear in LINEARS:
        for way, what in found[linear].items():
            what.update({"format": forward} if way == "fprop" else {"backend": by})
    return found


@pytest.mark.parametrize(
    ("asked", "forward", "backward", "by"),
    [
        ({"fp4": "e2m1", "mx_backward_precision": "fp8"}, "e2m1", LABELS["fp8"], "torch"),
        ({"fp4": "e2m1", "mx_backward_precision": "bf16"}, "e2m1", LABELS["bf16"], "torch"),
        ({"fp6": "e3m2"}, "e3m2", "e3m2", "emulated"),
        ({"fp8": "e4m3", "gemm_backend": "emulated"}, "e4m3", "e4m3", "emulated"),
        ({"fp4": "e2m1", "mx_backward_precision": "mxfp8_e5m2"}, "e2m1", "e5m2", "emulated"),
    ],
)
def test_a_run_that_did_as_asked_is_not_marked(
    asked: dict[str, str], forward: str, backward: str, by: str
) -> None:
    rows = direction_rows(counted(forward, backward, by), asked)
    assert [row.direction for row in rows] == ["fprop", "dgrad", "wgrad"]
    assert all(row.matches for row in rows), rows
    rows = direction_rows(counted(forward, "fp8-e4m3", by), asked)
    assert [row.matches for row in rows] == [True, False, False]


def test_fp8_of_transformer_engine_alone_is_no_mx_format() -> None:
    assert requested_formats({"fp8": "e4m3", "gemm_backend": None}) == {}


def test_an_mx_format_that_nobody_asked_for_is_marked(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write(run, "census.json", {**census("e2m1"), "expected": []})
    assert "differs" in texts(run_page(run), "Precision")


@pytest.mark.parametrize(("mode", "tone"), [("on", "bad"), ("auto", "good")])
def test_a_fusion_that_was_asked_for_and_declined_is_marked(
    tmp_path: Path, mode: str, tone: str
) -> None:
    run = make_run(tmp_path)
    write(run, "fusions.json", [gate("fused_ln_modulate", mode, 0, width=3)])
    page = run_page(run)
    assert page.tone == tone
    assert "width: 3" in texts(page, "Fusions")


@pytest.mark.parametrize(("status", "tone"), [("overridden", "bad"), ("expected", "good")])
def test_a_key_that_did_not_arrive_is_marked(tmp_path: Path, status: str, tone: str) -> None:
    run = make_run(tmp_path)
    write(run, "effective.json", [effective("model.apply_rope_fusion", True, status)])
    page = run_page(run)
    assert page.tone == tone
    said = "1 keys; 1 did not" if status == "overridden" else "1 keys; 0 did not"
    assert said in texts(page, "Requested and effective")


@pytest.mark.parametrize(
    ("status", "tone"), [("failed", "bad"), ("stopped", "warn"), ("running", "warn")]
)
def test_how_a_run_ended_is_its_state(tmp_path: Path, status: str, tone: str) -> None:
    page = run_page(make_run(tmp_path, status=status))
    assert (page.state.split(";")[0], page.tone) == (status, tone)


def test_a_loss_that_is_no_number_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path, loss=lambda step: float("nan") if step > 100 else 1.0)
    assert "20 values are not finite" in texts(run_page(run), "Curves")


# -- what is missing ------------------------------------------------------------------------


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


# -- files ----------------------------------------------------------------------------------


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


# -- drawing --------------------------------------------------------------------------------


def test_a_chart_has_its_title_ticks_and_a_legend_for_several_lines() -> None:
    ramp = Curve((0.0, 100.0, 200.0), (1.0, 2.0, 4.0))
    one = chart("loss <1>", [Line("", ramp)])
    assert "loss &lt;1&gt;" in one
    assert "figcaption" not in one
    two = chart("loss", [Line("a", ramp), Line("b", ramp, "s1")])
    assert two.count("<polyline") == 2
    assert two.count("<span>") == 2


@pytest.mark.parametrize("y", [(), (float("nan"),) * 3])
def test_nothing_to_draw_is_no_chart(y: tuple[float, ...]) -> None:
    assert chart("loss", [Line("a", Curve(tuple(map(float, range(len(y)))), y))]) == ""


def test_values_that_are_not_finite_leave_no_trace_in_the_drawing() -> None:
    drawing = chart("loss", [Line("a", Curve((1.0, 2.0, 3.0), (1.0, float("inf"), 2.0)))])
    assert "nan" not in drawing
    assert "inf" not in drawing


def test_one_point_is_a_dot() -> None:
    assert "<circle" in chart("loss", [Line("a", Curve((1.0,), (2.0,)))])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.31, 0.92, [0.4, 0.6, 0.8]),
        (5, 5, [5]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (262144, "262.1k"), (1.5e6, "1.5M"), (0.586, "0.586"), (0.000012, "1.2e-5")],
)
def test_axis_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_thinning_keeps_every_extreme_and_every_broken_value() -> None:
    y = [0.0] * 5_000
    y[1234], y[4321], y[77] = 9.0, -9.0, float("nan")
    thin = thinned(Curve(tuple(map(float, range(5_000))), tuple(y)), 500)
    assert len(thin.x) <= 510
    assert {1234.0, 4321.0, 77.0} <= set(thin.x)
    assert list(thin.x) == sorted(thin.x)


def test_smoothing_is_the_mean_of_the_last_values() -> None:
    given = Curve((1, 2, 3, 4), (1.0, 3.0, 5.0, 7.0))
    assert smoothed(given, 2).y == (1.0, 2.0, 4.0, 6.0)


def test_quantiles_leave_out_what_is_not_finite() -> None:
    found = spread([float(n) for n in range(101)] + [float("inf")])
    assert found is not None
    assert (found.count, found.median, found.low, found.high) == (101, 50.0, 5.0, 95.0)
    assert spread([float("nan")]) is None
