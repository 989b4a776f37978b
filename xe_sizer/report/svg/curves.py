"""Lines over two axes, each named at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.svg.frame import ROW, mark_lines, mark_rows
from xe_sizer.report.svg.plot import frame, marks_across, plot
from xe_sizer.report.svg.scale import GAP
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Drawn, Stroke, Text, fitted, line, text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Curves, Line
    from xe_sizer.report.svg.plot import Plot
    from xe_sizer.report.svg.shapes import Shape

_SAMPLE = 26.0  # length of a line in the legend


def draw(curves: Curves) -> Drawn:
    """Lines told apart by their dashes, below a legend; loads that are asked as lines upwards."""
    xs = [x for each in curves.lines for x, _ in each.points]
    ys = [y for each in curves.lines for _, y in each.points]
    most = max(ys)
    near = [mark.value for mark in curves.marks if mark.value <= 8 * most]
    rows = mark_rows(curves.asked, plot(curves.across, curves.up, xs, [*ys, *near]).across, 0.0)[1]
    area = plot(curves.across, curves.up, [*xs, *(mark.value for mark in curves.asked)], [*ys, *near], rows)
    asked, _ = mark_rows(curves.asked, area.across, ROW + 4)
    across, labels = marks_across(area, curves.marks, ("start", "end"))
    legend, bottom = _legend(curves, area.height + 4)
    shapes = (
        *frame(area),
        *across,
        *mark_lines(curves.asked, area.across, area.top, area.bottom),
        *(_line(each, place, area) for place, each in enumerate(curves.lines)),
        *asked,
        *labels,
        *legend,
    )
    return Drawn(shapes, bottom)


def _line(each: Line, place: int, area: Plot) -> Stroke:
    return Stroke((tuple(area.at(x, y) for x, y in each.points),), f"l{place % 4}", says=each.name)


def _legend(curves: Curves, top: float) -> tuple[list[Shape], float]:
    if len(curves.lines) < 2:
        return [], top
    entries = list(_entries(curves))
    shapes: list[Shape] = []
    x, y = 4.0, top + ROW - 4
    for place, words in entries:
        wide = _SAMPLE + 6 + text_width(words)
        if x > 4 and x + wide > WIDTH:
            x, y = 4.0, y + ROW
        shapes += [line(x, y - 4, x + _SAMPLE, y - 4, f"l{place % 4}"), Text(x + _SAMPLE + 6, y, words)]
        x += wide + 2 * GAP
    return shapes, y + 6


def _entries(curves: Curves) -> Iterator[tuple[int, str]]:
    for place, each in enumerate(curves.lines):
        yield place, fitted(each.name, WIDTH - _SAMPLE - 14, SIZE)
