"""A plot over two axes: its frame, and lines across and upwards with their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.report.svg.bars import EDGE
from xe_sizer.report.svg.frame import AXIS_HEIGHT, ROW, axis_below
from xe_sizer.report.svg.scale import GAP, scale_of
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Box, Text, fitted, line, text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Axis, Mark
    from xe_sizer.report.svg.scale import Scale
    from xe_sizer.report.svg.shapes import Anchor, Shape

HEIGHT = 230.0  # of the plot
_INNER = 6.0
_FARTHEST_ROW = 8


@frozen
class Plot:
    """Where values are drawn: `left` to `right`, and from `bottom` up to `top`."""

    across: Scale
    up: Scale
    top: float
    bottom: float

    @property
    def box(self) -> Box:
        return Box(self.across.start, self.top, self.across.end, self.bottom)

    def at(self, across: float, up: float) -> tuple[float, float]:
        return self.across.at(across), self.up.at(up)

    @property
    def height(self) -> float:
        """Of the picture: the plot and what stands below it."""
        return self.bottom + AXIS_HEIGHT


def plot(across: Axis, up: Axis, xs: Sequence[float], ys: Sequence[float], head: float = 0.0) -> Plot:
    """A plot that shows all values. head : room above it, below the label of the axis upwards"""
    top = ROW + 6 + head
    bottom = top + HEIGHT
    upwards = scale_of(up, ys, bottom, top + _INNER)
    margin = max((text_width(label, SIZE) for _, label in upwards.ticks()), default=0.0)
    return Plot(scale_of(across, xs, margin + GAP, WIDTH - EDGE), upwards, top, bottom)


def frame(plot: Plot) -> Iterator[Shape]:
    """Axes, grid and ticks; the label of the axis upwards stands above it."""
    yield from axis_below(plot.across, plot.top, plot.bottom)
    left, right = plot.across.start, plot.across.end
    yield line(left, plot.bottom, left, plot.top, "axis")
    last = plot.bottom + SIZE
    for y, label in plot.up.ticks():
        if y + SIZE > last:
            continue
        last = y
        yield line(left, y, right, y, "grid")
        yield Text(left - GAP / 2, y + 4, label, "end", "s")
    yield Text(0.0, ROW - 4, fitted(plot.up.axis.label, WIDTH), "start", "s")


def marks_across(
    plot: Plot, marks: Sequence[Mark], ends: Sequence[Anchor] = ("end", "start")
) -> tuple[list[Shape], list[Text]]:
    """Lines at heights, and their labels beside them, apart from each other.

    ends : of a line, at which its label may stand: the first where there is room
    """
    lines: list[Shape] = []
    texts: list[Text] = []
    left, right = plot.across.start, plot.across.end
    for mark in marks:
        if not plot.up.low <= mark.value <= plot.up.high:
            continue
        y = plot.up.at(mark.value)
        lines.append(line(left, y, right, y, "mark"))
        free = (text for text in _labels(mark, y, plot, ends) if not any(text.box.meets(other.box) for other in texts))
        texts += islice(free, 1)
    return lines, texts


def _labels(mark: Mark, y: float, plot: Plot, ends: Sequence[Anchor]) -> Iterator[Text]:
    """Where the label of a line may stand: above it or below, right or left, then farther away."""
    left, right = plot.across.start + 4, plot.across.end - 4
    words = fitted(mark.text, right - left, SIZE, True)
    for rows in range(_FARTHEST_ROW):
        for baseline in (y - 5 - rows * ROW, y + SIZE + 2 + rows * ROW):
            for text in (Text(right if end == "end" else left, baseline, words, end, "b") for end in ends):
                if plot.top <= text.box.top and text.box.bottom <= plot.bottom:
                    yield text
