"""Parts of a whole beside each other in one bar, numbered, with a legend of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.svg.bars import BEYOND, EDGE
from xe_sizer.report.svg.frame import AXIS_HEIGHT, axis_below, mark_lines, mark_rows
from xe_sizer.report.svg.scale import GAP, scale_of
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Drawn, Rect, Text, fitted, text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Part, Stack
    from xe_sizer.report.svg.scale import Scale
    from xe_sizer.report.svg.shapes import Shape

HEIGHT = 34.0  # of the bar
LEGEND_ROW = 19.0
SWATCH = 14.0
COLOURS = 8
_NUMBER = 11.0


def draw(stack: Stack) -> Drawn:
    """The bar below its marks, the axis, then a line for each part and one for the whole."""
    values = [stack.whole.value, *(BEYOND * mark.value for mark in stack.marks)]
    scale = scale_of(stack.axis, values, EDGE, WIDTH - EDGE)
    labels, top = mark_rows(stack.marks, scale, 0.0)
    bar_top = top + 4
    bottom = bar_top + HEIGHT + 4
    legend_top = bottom + AXIS_HEIGHT + 10
    shapes = (
        *axis_below(scale, top, bottom),
        *_segments(stack, scale, bar_top),
        *mark_lines(stack.marks, scale, top, bottom),
        *labels,
        *_legend(stack, legend_top),
    )
    return Drawn(shapes, legend_top + LEGEND_ROW * (len(stack.parts) + 1) + 2)


def _segments(stack: Stack, scale: Scale, top: float) -> Iterator[Shape]:
    """Boxes with a gap between them; what lies beyond the limit is framed."""
    before = 0.0
    for place, part in enumerate(stack.parts):
        left, right = scale.at(before), scale.at(before + part.value)
        before += part.value
        gap = 1.0 if right - left > 3 else 0.0
        says = f"{part.name}: {part.text}"
        yield Rect(left, top, max(right - left - gap, 0.5), HEIGHT, f"c{place % COLOURS + 1}", says)
        if right - left > text_width(str(place + 1), _NUMBER, True) + 4:
            x, y = (left + right - gap) / 2, top + HEIGHT / 2 + 4
            yield Text(x, y, str(place + 1), "middle", "on", _NUMBER)
    if stack.over is not None and stack.whole.value > stack.over:
        x = scale.at(stack.over)
        yield Rect(x, top - 2, scale.at(stack.whole.value) - x, HEIGHT + 4, "over", "more than there is")


def _legend(stack: Stack, top: float) -> Iterator[Shape]:
    values = [text_width(part.text, SIZE, True) for part in (*stack.parts, stack.whole)]
    shares = [text_width(part.share, SIZE) for part in (*stack.parts, stack.whole)]
    value_end = WIDTH - EDGE - (max(shares) + 2 * GAP if any(shares) else 0.0)
    room = value_end - max(values) - GAP - EDGE - SWATCH - GAP
    for place, part in enumerate(stack.parts):
        y = top + LEGEND_ROW * (place + 1) - 6
        yield Rect(EDGE, y - 11, SWATCH, SWATCH, f"c{place % COLOURS + 1}")
        yield Text(EDGE + SWATCH / 2, y - 0.5, str(place + 1), "middle", "on", _NUMBER - 1.5)
        yield from _entry(part, y, value_end, room, "t")
    y = top + LEGEND_ROW * (len(stack.parts) + 1) - 6
    yield Rect(EDGE, y - 14, WIDTH - 2 * EDGE, 1.0, "rule")
    yield from _entry(stack.whole, y, value_end, room, "b")


def _entry(part: Part, y: float, value_end: float, room: float, style: str) -> Iterator[Text]:
    yield Text(EDGE + SWATCH + GAP, y, fitted(part.name, room, SIZE, style == "b"), "start", style)
    yield Text(value_end, y, part.text, "end", "b")
    if part.share:
        yield Text(WIDTH - EDGE, y, part.share, "end", "s")
