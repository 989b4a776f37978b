"""What drawings share: the axis below, lines across and upwards with their labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.svg.scale import GAP
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Stroke, Text, fitted, line, text_width, within

if TYPE_CHECKING:
    from xe_sizer.report.picture import Mark
    from xe_sizer.report.svg.scale import Scale
    from xe_sizer.report.svg.shapes import Shape

ROW = 16.0  # from one line of text to the next
AXIS_HEIGHT = 2 * ROW + 4  # below the plot: ticks and what they count


def axis_below(scale: Scale, top: float, bottom: float) -> Iterator[Shape]:
    """Grid lines from `top` to `bottom`, and below them ticks and the label."""
    yield line(scale.start, bottom, scale.end, bottom, "axis")
    last = -GAP
    for x, label in scale.ticks():
        text = within(Text(x, bottom + ROW - 2, label, "middle", "s"))
        if text.box.left < last + GAP:
            continue
        last = text.box.right
        yield line(x, top, x, bottom, "grid")
        yield text
    room = WIDTH - 2 * GAP
    yield within(Text((scale.start + scale.end) / 2, bottom + 2 * ROW, fitted(scale.axis.label, room), "middle", "s"))


def mark_rows(marks: Sequence[Mark], scale: Scale, top: float) -> tuple[list[Text], float]:
    """Labels of marks above a plot, in as many rows as they need, and the height of these."""
    rows: list[list[Text]] = []
    for mark in sorted(marks, key=lambda mark: mark.value):
        words = fitted(f"▼ {mark.text}" if mark.value <= scale.high else f"{mark.text} ▶", WIDTH, SIZE, True)
        x = scale.at(mark.value)
        # the sign stands over the line: the text begins there, or ends there where it would leave the picture
        flipped = x + text_width(words, SIZE, True) - 5 > WIDTH
        if flipped and mark.value <= scale.high:
            words = fitted(f"{mark.text} ▼", WIDTH, SIZE, True)
        placed = Text(x + 5, 0.0, words, "end", "b") if flipped else Text(x - 5, 0.0, words, "start", "b")
        placed = within(placed)
        row = next((row for row in rows if not any(_near(placed, other) for other in row)), None)
        if row is None:
            rows.append(row := [])
        row.append(placed)
    moved = [
        Text(text.x, top + ROW * (place + 1) - 4, text.text, text.anchor, text.style)
        for place, row in enumerate(rows)
        for text in row
    ]
    return moved, ROW * len(rows)


def _near(one: Text, other: Text) -> bool:
    return one.box.left < other.box.right + GAP and other.box.left < one.box.right + GAP


def mark_lines(
    marks: Iterable[Mark], scale: Scale, top: float, bottom: float, texts: Iterable[Text] = ()
) -> Iterator[Stroke]:
    """Lines upwards at the marks that the axis shows, broken where they would run through one of the texts."""
    boxes = sorted((text.box for text in texts), key=lambda box: box.top)
    for mark in marks:
        if mark.value <= scale.high:
            x, start = scale.at(mark.value), top
            for box in boxes:
                if box.left - GAP < x < box.right + GAP:
                    if box.top > start:
                        yield line(x, start, x, box.top, "mark")
                    start = max(start, box.bottom)
            if bottom > start:
                yield line(x, start, x, bottom, "mark")


def whisker(x1: float, x2: float, y: float, half: float) -> Stroke:
    """A range along a line: ends and what lies between."""
    return Stroke((((x1, y - half), (x1, y + half)), ((x1, y), (x2, y)), ((x2, y - half), (x2, y + half))), "whisker")


def whisker_up(x: float, y1: float, y2: float, half: float) -> Stroke:
    return Stroke((((x - half, y1), (x + half, y1)), ((x, y1), (x, y2)), ((x - half, y2), (x + half, y2))), "whisker")
