# SPDX-License-Identifier: Apache-2.0
"""Line charts as inline SVG; colours come from the page, so that they follow its theme."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .curves import Curve, thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 30, 34
_TICKS = 5


@dataclass(frozen=True)
class Line:
    """A curve of a chart. ``style`` is a class of the style sheet: s0..s5, faint, dots."""

    label: str
    curve: Curve
    style: str = "s0"


@dataclass(frozen=True)
class Band:
    """The area between two values at each position."""

    label: str
    low: Curve
    high: Curve


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (
            map(math.log10, (self.low, self.high, value)) if self.log
            else (self.low, self.high, value)
        )  # fmt: skip
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.stop - self.start)


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str = "samples",
    bands: Sequence[Band] = (),
    log: bool = False,
    mark: float | None = None,
) -> str:
    """SVG of the curves; "" when none has a finite point. ``mark`` draws a vertical line there."""
    shown = [Line(line.label, thinned(line.curve), line.style) for line in lines if line.curve]
    edges = [edge for band in bands for edge in (band.low, band.high)]
    xs = [x for line in shown for x in line.curve.x]
    ys = [y for c in (*(line.curve for line in shown), *edges) for y in c.y if math.isfinite(y)]
    if not xs or not ys:
        return ""
    log = log and min(ys) > 0
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    up = _Scale(*_padded(min(ys), max(ys), log), HEIGHT - BOTTOM, TOP, log)
    parts = [_frame(title, across, up, x_label)]
    parts += [_band(band, across, up) for band in bands]
    if mark is not None and across.low <= mark <= across.high:
        x = f"{across(mark):.1f}"
        parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    parts += [_path(line, across, up) for line in shown]
    named = [(line.label, line.style) for line in shown]
    legend = _legend([*named, *((band.label, "band") for band in bands[:1])])
    return (
        f'<figure><svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg>{legend}</figure>'
    )


def ticks(low: float, high: float, count: int = _TICKS) -> list[float]:
    """Round positions between ``low`` and ``high``: 1, 2 or 5 times a power of ten apart."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A short number for an axis: 262144 is 262k, 0.000012 is 1.2e-5."""
    if value == 0:
        return "0"
    size = abs(value)
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.4g}{suffix}"
    if size < 1e-3:
        mantissa, _, exponent = f"{value:.2g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:.4g}"


def _padded(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        return low / 1.05, high * 1.05
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return found if len(found) <= 2 * _TICKS else [v for v in found if f"{v:e}"[0] == "1"]


def _frame(title: str, across: _Scale, up: _Scale, x_label: str) -> str:
    parts = [f'<text class="title" x="{LEFT}" y="16">{escape(title)}</text>']
    for value in _log_ticks(up.low, up.high) if up.log else ticks(up.low, up.high):
        y = up(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
                     f'y2="{y:.1f}"/><text class="tick y" x="{LEFT - 6}" y="{y + 4:.1f}">'
                     f"{number(value)}</text>")  # fmt: skip
    parts += [
        f'<text class="tick x" x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 16}">'
        f"{number(value)}</text>"
        for value in ticks(across.low, across.high)
    ]
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" '
                 f'y2="{HEIGHT - BOTTOM}"/>')  # fmt: skip
    parts.append(f'<text class="tick x" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" '
                 f'y="{HEIGHT - 4}">{escape(x_label)}</text>')  # fmt: skip
    return "".join(parts)


def _path(line: Line, across: _Scale, up: _Scale) -> str:
    points = [
        (across(x), up(y))
        for x, y in zip(line.curve.x, line.curve.y, strict=True)
        if math.isfinite(y)
    ]
    if len(points) == 1 or line.style.startswith("dots"):
        dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
        return f'<g class="{line.style} point">{"".join(dots)}</g>{_joined(line, points)}'
    return _joined(line, points)


def _joined(line: Line, points: Sequence[tuple[float, float]]) -> str:
    if len(points) < 2:
        return ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="curve {line.style}" points="{path}"/>'


def _band(band: Band, across: _Scale, up: _Scale) -> str:
    low, high = thinned(band.low), thinned(band.high)
    forth = [(across(x), up(y)) for x, y in zip(low.x, low.y, strict=True)]
    back = [(across(x), up(y)) for x, y in zip(high.x, high.y, strict=True)][::-1]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*forth, *back))
    return f'<polygon class="band" points="{path}"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    """What each line is, as text that wraps below the drawing; nothing for a single one."""
    named = [(label, style) for label, style in entries if label]
    if len(named) < 2:
        return ""
    keys = (
        f'<span><svg class="key" viewBox="0 0 16 8"><line class="curve {style}" x1="0" x2="16" '
        f'y1="4" y2="4"/></svg>{escape(label)}</span>'
        for label, style in named
    )
    return f"<figcaption>{''.join(keys)}</figcaption>"
