"""Charts as SVG inside a page: lines along the time, bands of times, bars."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise

from corral.spark.lake.report.report import spelled

WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 70, 8, 10, 40
MOST_BARS = 12
LONGEST_LABEL = 60


@dataclass(frozen=True)
class Line:
    """One value along the time; None where there is none."""

    name: str
    ink: str
    values: Sequence[float | None]
    is_area: bool = False


@dataclass(frozen=True)
class Scale:
    """Values become heights: 0 at the bottom, 1 at the top."""

    ticks: Sequence[float]
    place: Callable[[float], float]


def counts(moments: Sequence[datetime], lines: Sequence[Line], step: int) -> str:
    """Counts from 0 up."""
    return _chart(moments, lines, linear(_highest(lines)), lambda value: f"{value:,.0f}", step)


def bands(moments: Sequence[datetime], lines: Sequence[Line], step: int) -> str:
    """Times on a scale that shows milliseconds and minutes alike; between first and last line a band."""
    scale = logarithmic(_highest(lines))
    band = _band(moments, lines[0].values, lines[-1].values, scale, step)
    return _chart(moments, lines, scale, spelled, step, under=band)


def bars(rows: Sequence[tuple[str, int]]) -> str:
    """The largest counts, each with what it counts."""
    shown = rows[:MOST_BARS]
    most = max((count for _, count in shown), default=1)
    height = 24 * len(shown) + 6
    parts = []
    for place, (label, count) in enumerate(shown):
        y, width = place * 24 + 4, max(300 * count / most, 1)
        cut = label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"
        parts.append(
            f'<g><title>{text(label)}: {count:,}</title><rect class="ink-bad" x="430" y="{y}" '
            f'width="{width:.1f}" height="16" rx="2"/><text x="422" y="{y + 12}" text-anchor="end">'
            f'{text(cut)}</text><text x="{436 + width:.1f}" y="{y + 12}">{count:,}</text></g>'
        )
    return _svg(820, height, f"{len(shown)} commonest reasons of failure", parts)


def linear(highest: float) -> Scale:
    """From 0 to a round number that is no lower than the highest.

    >>> linear(37).ticks
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    rough = max(highest, 1) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough)
    step = max(step, 1.0)
    ticks = [step * place for place in range(math.ceil(max(highest, 1) / step) + 1)]
    return Scale(ticks, lambda value: value / ticks[-1])


def logarithmic(highest: float) -> Scale:
    """From a millisecond up in tens; what takes less is at the bottom.

    >>> logarithmic(700).ticks
    [1.0, 10.0, 100.0, 1000.0]
    """
    most = max(math.ceil(math.log10(max(highest, 10))), 1)
    ticks = [10.0**power for power in range(most + 1)]
    return Scale(ticks, lambda value: math.log10(max(value, 1)) / most)


def text(value: str) -> str:
    r"""Text for a page: markup is shown and not obeyed, and so is what cannot be seen.

    >>> text("<b>\x1b[1m")
    '&lt;b&gt;\\x1b[1m'
    """
    seen = "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in value
    )
    return escape(seen)


# -- parts --------------------------------------------------------------------------------------------------


def _chart(
    moments: Sequence[datetime],
    lines: Sequence[Line],
    scale: Scale,
    say: Callable[[float], str],
    step: int,
    under: str = "",
) -> str:
    across = _across(moments, step)
    parts = [*_grid(scale, say), under, *_dates(moments, across)]
    for line in lines:
        parts += list(_drawn(line, moments, across, scale, say))
    told = ", ".join(line.name for line in lines)
    return _svg(WIDTH, HEIGHT, told, [*parts, *_legend(lines)])


def _across(moments: Sequence[datetime], step: int) -> Callable[[datetime], float]:
    """Where a moment is from left to right."""
    if not moments:
        return lambda moment: LEFT
    whole = max((moments[-1] - moments[0]).total_seconds(), step * 60)
    return lambda moment: LEFT + (WIDTH - LEFT - RIGHT) * (moment - moments[0]).total_seconds() / whole


def _down(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(share, 0), 1))


def _grid(scale: Scale, say: Callable[[float], str]) -> Iterator[str]:
    for tick in scale.ticks:
        y = _down(scale.place(tick))
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text(say(tick))}</text>'


def _dates(moments: Sequence[datetime], across: Callable[[datetime], float]) -> Iterator[str]:
    if not moments:
        return
    is_long = moments[-1] - moments[0] >= timedelta(days=1)
    form = "%m-%d %H:%M" if is_long else "%H:%M"
    ends = [(moments[0], "start"), (moments[len(moments) // 2], "middle"), (moments[-1], "end")]
    for moment, anchor in ends if len(moments) > 2 else ends[:1]:
        x = across(moment)
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="{anchor}">{moment:{form}}</text>'


def _drawn(
    line: Line,
    moments: Sequence[datetime],
    across: Callable[[datetime], float],
    scale: Scale,
    say: Callable[[float], str],
) -> Iterator[str]:
    spots = [
        (across(moment), _down(scale.place(value)), value, moment)
        for moment, value in zip(moments, line.values, strict=True)
        if value is not None
    ]
    if not spots:
        return
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in spots)
    if line.is_area and len(spots) > 1:
        floor = _down(0)
        yield (
            f'<polygon class="ink-{line.ink} area" points="{spots[0][0]:.1f},{floor:.1f} {way} '
            f'{spots[-1][0]:.1f},{floor:.1f}"/>'
        )
    yield f'<polyline class="ink-{line.ink} line" points="{way}"/>'
    # a dot to point at: it says what it stands for
    for x, y, value, moment in spots:
        size = 1.6 if len(spots) > 1 else 3
        yield (
            f'<circle class="ink-{line.ink}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{text(line.name)} '
            f"{text(say(value))}, {moment:%Y-%m-%d %H:%M}</title></circle>"
        )


def _band(
    moments: Sequence[datetime],
    low: Sequence[float | None],
    high: Sequence[float | None],
    scale: Scale,
    step: int,
) -> str:
    across = _across(moments, step)
    known = [
        (across(moment), _down(scale.place(lower)), _down(scale.place(upper)))
        for moment, lower, upper in zip(moments, low, high, strict=True)
        if lower is not None and upper is not None
    ]
    if len(known) < 2:
        return ""
    there = " ".join(f"{x:.1f},{upper:.1f}" for x, _, upper in known)
    back = " ".join(f"{x:.1f},{lower:.1f}" for x, lower, _ in reversed(known))
    return f'<polygon class="ink-a area" points="{there} {back}"/>'


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    places = [LEFT]
    for line in lines:
        places.append(places[-1] + 34 + 7 * len(line.name))
    for line, (x, _) in zip(lines, pairwise(places), strict=True):
        y = HEIGHT - 8
        yield f'<rect class="ink-{line.ink}" x="{x}" y="{y - 8}" width="10" height="8" rx="1"/>'
        yield f'<text x="{x + 14}" y="{y}">{text(line.name)}</text>'


def _highest(lines: Sequence[Line]) -> float:
    return max((value for line in lines for value in line.values if value is not None), default=1.0)


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(label)}">'
        + "".join(parts)
        + "</svg>"
    )
