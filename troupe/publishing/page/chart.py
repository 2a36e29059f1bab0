"""Charts as inline SVG: lines, points with intervals, and stacked bars.

matplotlib's SVG is not used: it needs the extra ``plots``, draws letters as paths (some 100 kB a
figure) and sets colours that no dark screen can change. Here colours are classes of the page.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_WIDTH, _HEIGHT = 720.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 12.0, 12.0, 30.0
_NUM_COLOURS = 8
MAX_POINTS = 400
"""Points of a line; of more, evenly spaced ones are drawn."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One value over a step; ``low`` and ``high`` are its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Values of one name; ``colour`` counts from 0."""

    name: str
    marks: Sequence[Mark]
    kind: Literal["line", "points", "bars"] = "line"
    colour: int = 0


def chart(series: Sequence[Trace], *, title: str, unit: str = "", top: float | None = None) -> str:
    """A figure with axes and a legend; "" where there is nothing to draw. ``top`` fixes the axis.

    Bars of all series are stacked, so they must share their steps.
    """
    drawn = [Trace(s.name, _thinned(s.marks), s.kind, s.colour) for s in series if s.marks]
    if not drawn:
        return ""
    frame = _frame(drawn, top)
    shapes = "".join(_bars(frame, [s for s in drawn if s.kind == "bars"]))
    shapes += "".join(_shape(frame, s) for s in drawn if s.kind != "bars")
    keys = "".join(
        f'<li class="hue-{s.colour % _NUM_COLOURS}">{html.escape(s.name)}</li>' for s in drawn
    )
    label = html.escape(title)
    return (
        f'<figure><figcaption>{label}</figcaption><svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        f'role="img" aria-label="{label}">{_axes(frame, unit)}{shapes}</svg>'
        f'<ul class="legend">{keys}</ul></figure>'
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    x0: float
    x1: float
    y0: float
    y1: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x0) / (self.x1 - self.x0)
        up = (y - self.y0) / (self.y1 - self.y0)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM),
        )


def _frame(series: Sequence[Trace], top: float | None) -> _Frame:
    marks = [mark for s in series for mark in s.marks]
    xs = [mark.x for mark in marks]
    stacked: dict[float, float] = {}
    for s in series:
        for mark in s.marks:
            if s.kind == "bars":
                stacked[mark.x] = stacked.get(mark.x, 0.0) + mark.y
    ys = [m.y for m in marks] + [m.low for m in marks if m.low is not None] + [*stacked.values(), 0]
    highest = top if top is not None else _round_up(max(ys))
    lowest = min(ys)
    half = 0.5 if max(xs) == min(xs) else 0.0
    return _Frame(min(xs) - half, max(xs) + half, lowest, highest if highest > lowest else 1.0)


def _axes(frame: _Frame, unit: str) -> str:
    parts: list[str] = []
    for step in range(5):
        y = frame.y0 + (frame.y1 - frame.y0) * step / 4
        left, height = frame.at(frame.x0, y)
        right, _ = frame.at(frame.x1, y)
        parts.append(
            f'<line class="grid" x1="{left:.1f}" y1="{height:.1f}" x2="{right:.1f}" '
            f'y2="{height:.1f}"/><text x="{left - 6:.1f}" y="{height + 4:.1f}" '
            f'text-anchor="end">{_short(y)}{html.escape(unit)}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        x = round(frame.x0 + (frame.x1 - frame.x0) * share)
        place, bottom = frame.at(x, frame.y0)
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        parts.append(
            f'<text x="{place:.1f}" y="{bottom + 20:.1f}" text-anchor="{anchor}">'
            f"{'step ' if share == 0.0 else ''}{_short(x)}</text>"
        )
    return "".join(parts)


def _shape(frame: _Frame, series: Trace) -> str:
    hue = f"hue-{series.colour % _NUM_COLOURS}"
    places = [frame.at(mark.x, mark.y) for mark in series.marks]
    if series.kind == "line":
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        return f'<polyline class="{hue}" points="{points}"/>'
    parts: list[str] = []
    for mark, (x, y) in zip(series.marks, places, strict=True):
        words = f"{series.name}, step {_short(mark.x)}: {mark.y:.3f}"
        if mark.low is not None and mark.high is not None:
            _, low = frame.at(mark.x, mark.low)
            _, high = frame.at(mark.x, mark.high)
            parts.append(
                f'<line class="{hue}" x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"/>'
            )
            words += f" ({mark.low:.3f} to {mark.high:.3f})"
        parts.append(
            f'<circle class="{hue}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{html.escape(words)}'
            "</title></circle>"
        )
    return "".join(parts)


def _bars(frame: _Frame, series: Sequence[Trace]) -> list[str]:
    parts: list[str] = []
    below: dict[float, float] = {}
    for s in series:
        width = max(1.0, 0.9 * (_WIDTH - _LEFT - _RIGHT) / max(len(s.marks), 1))
        for mark in s.marks:
            start = below.get(mark.x, 0.0)
            x, bottom = frame.at(mark.x, start)
            _, top = frame.at(mark.x, start + mark.y)
            below[mark.x] = start + mark.y
            left = min(max(x - width / 2, _LEFT), _WIDTH - _RIGHT - width)
            parts.append(
                f'<rect class="hue-{s.colour % _NUM_COLOURS}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{max(0.0, bottom - top):.1f}"/>'
            )
    return parts


def _thinned(marks: Sequence[Mark]) -> Sequence[Mark]:
    stride = max(1, -(-len(marks) // MAX_POINTS))
    return marks[::stride]


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 8 or 10 times a power of ten: axes of four parts read well."""
    if value <= 0.0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if value <= step * power * (1 + 1e-9))


def _short(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
