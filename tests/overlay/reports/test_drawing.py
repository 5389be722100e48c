# SPDX-License-Identifier: Apache-2.0
"""Charts of reports: ticks, numbers, curves that are thinned and smoothed."""

from __future__ import annotations

import pytest

from mxflux.reports.curves import Curve, smoothed, spread, thinned
from mxflux.reports.svg import Line, chart, number, ticks


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
