"""Bars with their ranges, below each other against lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.svg.frame import AXIS_HEIGHT, ROW, axis_below, mark_lines, mark_rows, whisker
from xe_sizer.report.svg.scale import GAP, scale_of
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Drawn, Rect, Text, fitted, text_width, wrapped

if TYPE_CHECKING:
    from xe_sizer.report.picture import Bar, Bars
    from xe_sizer.report.svg.scale import Scale
    from xe_sizer.report.svg.shapes import Shape

HEIGHT = 14.0  # of a bar
BELOW = 9.0  # between a bar and the next text
FARTHEST = 8.0  # times the longest bar: a mark beyond is said, not drawn
BEYOND = 1.05  # of a mark, that the axis shows
EDGE = 8.0  # on both sides of the plot, for the outer halves of labels


def draw(bars: Bars) -> Drawn:
    """Each bar below its name and value, with its range as a whisker."""
    ends = [value for bar in bars.bars for value in (bar.value, bar.high) if value is not None]
    near = [mark.value for mark in bars.marks if mark.value <= FARTHEST * max(ends, default=mark.value)]
    scale = scale_of(bars.axis, [*ends, *(BEYOND * value for value in near)], EDGE, WIDTH - EDGE)
    labels, top = mark_rows(bars.marks, scale, 0.0)
    rows: list[Shape] = []
    bottom = top
    for bar in bars.bars:
        texts = list(_texts(bar, bottom))
        bottom = max(text.y for text in texts) + 5
        rows += [*_bar(bar, scale, bottom), *texts]
        bottom += HEIGHT + BELOW
    texts = [shape for shape in rows if isinstance(shape, Text)]
    lines = mark_lines(bars.marks, scale, top, bottom, texts)
    shapes = (*axis_below(scale, top, bottom), *lines, *rows, *labels)
    return Drawn(shapes, bottom + AXIS_HEIGHT)


def _texts(bar: Bar, top: float) -> Iterator[Text]:
    """The name, and the value beside its last line where that has room, else below it."""
    room = WIDTH - 2 * EDGE
    value = fitted(bar.text, room, SIZE, True)
    names = wrapped(bar.name, room)
    for place, name in enumerate(names):
        yield Text(EDGE, top + ROW * (place + 1) - 4, name)
    beside = text_width(names[-1]) + GAP + text_width(value, SIZE, True) <= room
    yield Text(WIDTH - EDGE, top + ROW * (len(names) + (not beside)) - 4, value, "end", "b")


def _bar(bar: Bar, scale: Scale, top: float) -> Iterator[Shape]:
    if bar.value is None:
        return
    yield Rect(scale.start, top, max(scale.at(bar.value) - scale.start, 1.0), HEIGHT, "fill", f"{bar.name}: {bar.text}")
    if bar.low is not None and bar.high is not None:
        yield whisker(scale.at(bar.low), scale.at(bar.high), top + HEIGHT / 2, 5.0)
