"""Points over two axes, those that matter named, each with its range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.svg.frame import ROW, whisker_up
from xe_sizer.report.svg.plot import frame, marks_across, plot
from xe_sizer.report.svg.scale import GAP
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Box, Drawn, Stroke, Text, fitted, line, text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Chart, Point
    from xe_sizer.report.svg.plot import Plot
    from xe_sizer.report.svg.shapes import Shape

_SMALL = 11.0
_RADII = (2.5, 4.5, 6.0)  # of markers, by rank
_DIRECTIONS = 16
_REACH = (9.0, 14.0, 22.0, 34.0, 50.0, 70.0, 95.0)  # how far from its point a name may stand
_LEADER = 16.0  # from here on a line leads to it
# Corners of the markers of kinds, in a circle of one.
_CORNERS = ((12, 0.0), (4, 0.125), (3, 0.25), (4, 0.0), (3, 0.75), (5, 0.25), (6, 0.0))


def draw(chart: Chart) -> Drawn:
    """Points of many below those that stand out, names where they meet nothing, then the legend."""
    heights = [value for p in chart.points for value in (p.up, p.low, p.high) if value is not None]
    near = [mark.value for mark in chart.marks if min(heights) / 4 <= mark.value <= 4 * max(heights)]
    widths = [point.across for point in chart.points]
    if chart.diagonal:
        widths = heights = [*widths, *heights]
    area = plot(chart.across, chart.up, widths, [*heights, *near])
    lines, labels = marks_across(area, chart.marks)
    ranked = sorted(chart.points, key=lambda point: point.rank)
    points = [shape for point in ranked for shape in _point(point, area)]
    heights_of_marks = [area.up.at(mark.value) for mark in chart.marks]
    names = list(_names(chart.points, area, [text.box for text in labels], heights_of_marks))
    legend, bottom = _legend(chart, area.height + 4)
    diagonal = [_diagonal(area)] if chart.diagonal else []
    return Drawn((*frame(area), *diagonal, *lines, *points, *labels, *names, *legend), bottom)


def _diagonal(area: Plot) -> Stroke:
    low, high = max(area.across.low, area.up.low), min(area.across.high, area.up.high)
    return line(*area.at(low, low), *area.at(high, high), "middle")


def _point(point: Point, area: Plot) -> Iterator[Shape]:
    x, y = area.at(point.across, point.up)
    if point.low is not None and point.high is not None:
        yield whisker_up(x, area.up.at(point.low), area.up.at(point.high), 3.0)
    yield _marker(x, y, point.kind, point.rank, point.says)


def _marker(x: float, y: float, kind: int, rank: int, says: str = "") -> Stroke:
    corners, turn = _CORNERS[kind % len(_CORNERS)]
    radius = _RADII[rank] * (1.0 if corners > 4 else 1.25)
    angles = [2 * math.pi * (corner / corners + turn) for corner in range(corners)]
    outline = tuple((x + radius * math.cos(angle), y - radius * math.sin(angle)) for angle in angles)
    return Stroke((outline,), f"p{rank}", True, says)


def _names(points: Sequence[Point], area: Plot, taken: Sequence[Box], lines: Sequence[float]) -> Iterator[Shape]:
    """The names of points, the most important first, each at the nearest place that is free.

    taken : where texts stand; lines : heights of lines across, which names only meet where all else is taken
    """
    obstacles = [*taken, *(_around(area.at(p.across, p.up), _RADII[p.rank] + 1) for p in points if p.rank)]
    thin = [box for point in points if (box := _whisker_box(point, area))]
    thin += [Box(area.box.left, y - 1, area.box.right, y + 1) for y in lines]
    for point in sorted(points, key=lambda point: -point.rank):
        if not point.name:
            continue
        x, y = area.at(point.across, point.up)
        found = _place(point, x, y, area, [*obstacles, *thin]) or _place(point, x, y, area, obstacles)
        if found is None:
            continue  # the point still shows it to a pointer, and the table to everybody
        obstacles.append(found.box)
        distance = _distance(found.box, x, y)
        if distance > _LEADER:
            yield line(x, y, *_nearest(found.box, x, y), "leader")
        yield found


def _around(place: tuple[float, float], radius: float) -> Box:
    return Box(place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius)


def _whisker_box(point: Point, area: Plot) -> Box | None:
    if point.low is None or point.high is None:
        return None
    x = area.across.at(point.across)
    return Box(x - 3, area.up.at(point.high), x + 3, area.up.at(point.low))


def _place(point: Point, x: float, y: float, area: Plot, obstacles: Sequence[Box]) -> Text | None:
    style, size = ("b", SIZE) if point.rank == 2 else ("t", _SMALL)
    words = fitted(point.name, 0.7 * WIDTH, size, style == "b")
    wide = text_width(words, size, style == "b")
    room = Box(area.box.left + 2, area.box.top, WIDTH, area.box.bottom - 2)
    for reach in _REACH:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            # the centre of the text lies so far out that its edge is `reach` away
            across, up = math.cos(angle), math.sin(angle)
            centre = x + across * (reach + wide / 2), y - up * (reach + size / 2)
            text = Text(centre[0], centre[1] + 0.3 * size, words, "middle", style, size)
            if text.box.inside(room) and not any(text.box.meets(box) for box in obstacles):
                return text
    return None


def _nearest(box: Box, x: float, y: float) -> tuple[float, float]:
    return min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)


def _distance(box: Box, x: float, y: float) -> float:
    return math.dist((x, y), _nearest(box, x, y))


def _legend(chart: Chart, top: float) -> tuple[list[Shape], float]:
    """What shapes and sizes of points mean, beside each other as far as there is room."""
    ranks = {point.rank for point in chart.points}
    entries = [(0, rank, words) for rank, words in enumerate(chart.ranks) if rank in ranks and words]
    if len(chart.kinds) > 1:
        entries += [(kind, 1, words) for kind, words in enumerate(chart.kinds)]
    if len(entries) < 2:
        return [], top
    shapes: list[Shape] = []
    x, y = 4.0, top + ROW - 4
    for kind, rank, words in entries:
        shown = fitted(words, WIDTH - 24)
        if x > 4 and x + 14 + text_width(shown) > WIDTH:
            x, y = 4.0, y + ROW
        shapes += [_marker(x + 4, y - 4, kind, rank), Text(x + 16, y, shown)]
        x += 16 + text_width(shown) + 2 * GAP
    return shapes, y + 6
