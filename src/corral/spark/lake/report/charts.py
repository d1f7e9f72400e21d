"""Charts as SVG: lines over time, bands of quantiles, bars."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from corral.spark.lake.report.report import duration

WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 70, 8, 10, 40
MAX_BARS = 12
MAX_LABEL = 60


@dataclass(frozen=True)
class ChartLine:
    """One value over time; None where there is none."""

    name: str
    ink: str
    values: Sequence[float | None]
    is_area: bool = False


@dataclass(frozen=True)
class ChartScale:
    """Maps values to heights: 0 at the bottom, 1 at the top."""

    ticks: Sequence[float]
    height: Callable[[float], float]


def counts(moments: Sequence[datetime], lines: Sequence[ChartLine], step: int, form: str = "") -> str:
    """Return a chart of counts, from 0 up; `form` is that of the times, such as `%a %H:%M`."""
    axes = _Axes(moments, step, linear(_highest(lines)), lambda value: f"{value:,.0f}", form)
    return _chart(axes, lines)


def bands(moments: Sequence[datetime], lines: Sequence[ChartLine], step: int, form: str = "") -> str:
    """Return a chart of durations on a logarithmic scale, with a band between the first and last line."""
    axes = _Axes(moments, step, logarithmic(_highest(lines)), duration, form)
    return _chart(axes, lines, _band(axes, lines[0].values, lines[-1].values))


def bars(title: str, rows: Sequence[tuple[str, int]], ink: str = "bad") -> str:
    """Return a chart of the first counts with their labels."""
    rows = rows[:MAX_BARS]
    highest = max((count for _, count in rows), default=1)
    parts = []
    for index, (label, count) in enumerate(rows):
        y, width = index * 24 + 4, max(300 * count / highest, 1)
        cut = label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"
        parts.append(
            f'<g><title>{text(label)}: {count:,}</title><rect class="ink-{ink}" x="430" y="{y}" '
            f'width="{width:.1f}" height="16" rx="2"/><text x="422" y="{y + 12}" text-anchor="end">'
            f'{text(cut)}</text><text x="{436 + width:.1f}" y="{y + 12}">{count:,}</text></g>'
        )
    return _svg(820, 24 * len(rows) + 6, title, parts)


def linear(highest: float) -> ChartScale:
    """Return a scale from 0 to a round number that is no lower than the highest.

    >>> linear(37).ticks
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    rough = max(highest, 1) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough)
    step = max(step, 1.0)
    ticks = [step * index for index in range(math.ceil(max(highest, 1) / step) + 1)]
    return ChartScale(ticks, lambda value: value / ticks[-1])


def logarithmic(highest: float) -> ChartScale:
    """Return a scale from a millisecond up in powers of ten; shorter durations are at the bottom.

    >>> logarithmic(700).ticks
    [1.0, 10.0, 100.0, 1000.0]
    """
    powers = max(math.ceil(math.log10(max(highest, 10))), 1)
    ticks = [10.0**power for power in range(powers + 1)]
    return ChartScale(ticks, lambda value: math.log10(max(value, 1)) / powers)


def text(value: str) -> str:
    r"""Escape text for a page: markup, and characters that cannot be printed.

    >>> text("<b>\x1b[1m")
    '&lt;b&gt;\\x1b[1m'
    """
    printable = "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in value
    )
    return escape(printable)


@dataclass(frozen=True)
class _Axes:
    """Time from left to right, in steps of so many minutes, and a scale from bottom to top."""

    moments: Sequence[datetime]
    step: int
    scale: ChartScale
    label: Callable[[float], str]
    form: str
    """Of the times; empty: dates where there are several."""

    def x(self, moment: datetime) -> float:
        first, last = self.moments[0], self.moments[-1]
        whole = max((last - first).total_seconds(), self.step * 60)
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment - first).total_seconds() / whole

    def y(self, value: float) -> float:
        return _down(self.scale.height(value))


def _chart(axes: _Axes, lines: Sequence[ChartLine], under: str = "") -> str:
    drawn = [part for line in lines for part in _drawn(axes, line)]
    parts = [*_grid(axes), under, *_dates(axes), *drawn, *_legend(lines)]
    return _svg(WIDTH, HEIGHT, ", ".join(line.name for line in lines), parts)


def _down(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(share, 0), 1))


def _grid(axes: _Axes) -> Iterator[str]:
    for tick in axes.scale.ticks:
        y = axes.y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(axes.label(tick))}</text>'


def _dates(axes: _Axes) -> Iterator[str]:
    moments = axes.moments
    if not moments:
        return
    form = axes.form or ("%m-%d %H:%M" if moments[-1] - moments[0] >= timedelta(days=1) else "%H:%M")
    ends = [(moments[0], "start"), (moments[len(moments) // 2], "middle"), (moments[-1], "end")]
    for moment, anchor in ends if len(moments) > 2 else ends[:1]:
        x, y = axes.x(moment), HEIGHT - BOTTOM + 15
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{moment:{form}}</text>'


def _drawn(axes: _Axes, line: ChartLine) -> Iterator[str]:
    spots = [
        (axes.x(moment), axes.y(value), value, moment)
        for moment, value in zip(axes.moments, line.values, strict=True)
        if value is not None
    ]
    if not spots:
        return
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in spots)
    if line.is_area and len(spots) > 1:
        floor = f"{_down(0):.1f}"
        yield (
            f'<polygon class="ink-{line.ink} area" points="{spots[0][0]:.1f},{floor} {way} '
            f'{spots[-1][0]:.1f},{floor}"/>'
        )
    yield f'<polyline class="ink-{line.ink} line" points="{way}"/>'
    size = 1.6 if len(spots) > 1 else 3
    for x, y, value, moment in spots:
        yield (
            f'<circle class="ink-{line.ink}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{text(line.name)} '
            f"{text(axes.label(value))}, {moment:{axes.form or '%Y-%m-%d %H:%M'}}</title></circle>"
        )


def _band(axes: _Axes, low: Sequence[float | None], high: Sequence[float | None]) -> str:
    edges = [
        (axes.x(moment), axes.y(lower), axes.y(upper))
        for moment, lower, upper in zip(axes.moments, low, high, strict=True)
        if lower is not None and upper is not None
    ]
    if len(edges) < 2:
        return ""
    there = " ".join(f"{x:.1f},{upper:.1f}" for x, _, upper in edges)
    back = " ".join(f"{x:.1f},{lower:.1f}" for x, lower, _ in reversed(edges))
    return f'<polygon class="ink-a area" points="{there} {back}"/>'


def _legend(lines: Sequence[ChartLine]) -> Iterator[str]:
    x, y = LEFT, HEIGHT - 8
    for line in lines:
        yield f'<rect class="ink-{line.ink}" x="{x}" y="{y - 8}" width="10" height="8" rx="1"/>'
        yield f'<text x="{x + 14}" y="{y}">{text(line.name)}</text>'
        x += 34 + 7 * len(line.name)


def _highest(lines: Sequence[ChartLine]) -> float:
    return max((value for line in lines for value in line.values if value is not None), default=1.0)


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(label)}">'
        + "".join(parts)
        + "</svg>"
    )
