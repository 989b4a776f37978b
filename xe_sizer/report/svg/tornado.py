"""Factors by how far they move a figure to both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.report.svg.bars import EDGE, HEIGHT
from xe_sizer.report.svg.frame import AXIS_HEIGHT, ROW, axis_below
from xe_sizer.report.svg.scale import GAP, scale_of
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Drawn, Rect, Stroke, Text, fitted, line, text_width, within

if TYPE_CHECKING:
    from xe_sizer.report.picture import Swing, Tornado
    from xe_sizer.report.svg.scale import Scale
    from xe_sizer.report.svg.shapes import Shape

_ROW_HEIGHT = ROW + HEIGHT + ROW + 6
_SMALL = 11.0


def draw(tornado: Tornado) -> Drawn:
    """A bar for each factor to both sides of the middle: its name above, the steps of its ends below."""
    values = [value for swing in tornado.swings for value in (swing.low, swing.high)]
    scale = scale_of(tornado.axis, [*values, 1.0, 0.8, 1.25], EDGE, WIDTH - EDGE)
    middle, top = scale.at(1.0), ROW + 2
    bottom = top + _ROW_HEIGHT * len(tornado.swings)
    rows = [
        shape
        for place, swing in enumerate(tornado.swings)
        for shape in _row(swing, scale, middle, top + _ROW_HEIGHT * place)
    ]
    head = within(Text(middle, ROW - 4, fitted(tornado.middle, WIDTH, SIZE, True), "middle", "b"))
    shapes = (*axis_below(scale, top, bottom), line(middle, top, middle, bottom, "middle"), *rows, head)
    return Drawn(shapes, bottom + AXIS_HEIGHT)


def _row(swing: Swing, scale: Scale, middle: float, top: float) -> Iterator[Shape]:
    bar_top = top + ROW
    yield Text(EDGE, top + ROW - 4, fitted(swing.name, WIDTH - 2 * EDGE, SIZE, True), "start", "b")
    left, right = scale.at(swing.low), scale.at(swing.high)
    if middle - left > 0.5:
        yield Rect(left, bar_top, middle - left, HEIGHT, "less", swing.low_text)
    if right - middle > 0.5:
        yield Rect(middle, bar_top, right - middle, HEIGHT, "more", swing.high_text)
    if right - left <= 1.0:
        yield Stroke((((middle, bar_top), (middle, bar_top + HEIGHT)),), "whisker")
    yield from _ends(swing, scale, bar_top + HEIGHT + ROW - 5)


def _ends(swing: Swing, scale: Scale, y: float) -> Iterator[Text]:
    """What the ends are, below them and each on its side of the middle; farther out where the picture ends."""
    middle = scale.at(1.0)
    both = bool(swing.low_text and swing.high_text)
    room = (WIDTH - 2 * EDGE - GAP) / 2 if both else WIDTH - 2 * EDGE
    low, high = (fitted(text, room, _SMALL) for text in (swing.low_text, swing.high_text))
    left = min(scale.at(swing.low), middle - GAP / 2 - text_width(low, _SMALL))
    right = max(scale.at(swing.high), middle + GAP / 2 + text_width(high, _SMALL))
    first = within(Text(left, y, low, "start", "s", _SMALL), EDGE, WIDTH - EDGE)
    last = within(Text(right, y, high, "end", "s", _SMALL), EDGE, WIDTH - EDGE)
    if both and first.box.right + GAP > last.box.left:
        first, last = replace(first, x=EDGE), replace(last, x=WIDTH - EDGE)
    yield from (text for text in (first, last) if text.text)
