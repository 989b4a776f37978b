"""Pictures as SVG: shapes with known boxes, so that no text meets another or leaves the picture."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.report.format import BEYOND_WORDS
from xe_sizer.report.picture import Bars, Chart, Curves, Stack, Strip, Tornado

if TYPE_CHECKING:
    from xe_sizer.report.document import Picture
    from xe_sizer.report.picture import Axis, Bar, Line, Mark, Part, Point, Swing, Tone


# Shapes: texts, lines, boxes and paths, in units of the picture, which is WIDTH units wide.

WIDTH = 420.0
SIZE = 12.0  # of text
ASCENT, DESCENT = 0.8, 0.22  # of letters above and below their line, of the size
# Advance widths of DejaVu Sans [of the size], the widest of the usual system fonts: other fonts take less room.
_ADVANCES = {
    0.30: "ijlI|'",
    0.34: " .,:;/\\",
    0.42: "frt()[]-",
    0.56: "cksvxyz*",
    0.64: "abdeghnopqu0123456789FJLEST$_",
    0.74: "ABCDGHKNOPQRUVXYZw",
    0.84: "<>=+~×±≤≥#&",
    1.00: "mMW%@→▲▼…",
}
_ADVANCE = {letter: advance for advance, letters in _ADVANCES.items() for letter in letters}
_UNKNOWN = 0.75  # a letter of another alphabet; ideographs take a whole square
_SQUARE = 1.05
_BOLD = 1.12
Anchor = Literal["start", "middle", "end"]


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    def inside(self, other: Box) -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


class Text(Immutable):
    """A line of text whose baseline is at `y`; `style` names a class of the style sheet."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    style: str = "t"
    size: float = SIZE

    @property
    def bold(self) -> bool:
        return self.style == "b"

    @property
    def box(self) -> Box:
        width = text_width(self.text, self.size, self.bold)
        left = {"start": self.x, "middle": self.x - width / 2, "end": self.x - width}[self.anchor]
        return Box(left, self.y - ASCENT * self.size, left + width, self.y + DESCENT * self.size)


class Rect(Immutable):
    """A filled box; `says` is what a pointer over it shows."""

    x: float
    y: float
    width: float
    height: float
    style: str
    says: str = ""


class Stroke(Immutable):
    """A path of straight lines, each from its first point on; filled where the style fills."""

    lines: tuple[tuple[tuple[float, float], ...], ...]
    style: str
    closed: bool = False
    says: str = ""


Shape = Text | Rect | Stroke


class Drawn(Immutable):
    shapes: tuple[Shape, ...]
    height: float


def text_width(text: str, size: float = SIZE, bold: bool = False) -> float:
    """Units that a text takes at most."""
    ems = sum(_ADVANCE.get(letter, _UNKNOWN if ord(letter) < 0x2E80 else _SQUARE) for letter in text)
    return ems * size * (_BOLD if bold else 1.0)


def fitted(text: str, room: float, size: float = SIZE, bold: bool = False) -> str:
    """The text, or as much of its beginning as there is room for, with an ellipsis."""
    if text_width(text, size, bold) <= room:
        return text
    kept = len(text)
    while kept and text_width(text[:kept].rstrip() + "…", size, bold) > room:
        kept -= 1
    return text[:kept].rstrip() + "…"


def wrapped(text: str, room: float, size: float = SIZE) -> list[str]:
    """The text in lines that have room, broken between words; a word without room is cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [fitted(each, room, size) for each in lines]


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Stroke:
    return Stroke((((x1, y1), (x2, y2)),), style)


def within(text: Text, left: float = 0.0, right: float = WIDTH) -> Text:
    """The text, moved sideways as far as it would leave the picture."""
    box = text.box
    shift = max(left - box.left, 0.0) or min(right - box.right, 0.0)
    return Text(text.x + shift, text.y, text.text, text.anchor, text.style, text.size)


# Scales: linear and logarithmic axes with ticks at round numbers.

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_DECADES = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))  # ticks of a decade, fewer where many decades are shown
MOST_TICKS = 6
LEAST_DIGITS = 1e-4
GAP = 8.0  # units between the labels of ticks


class Scale(Immutable):
    """An axis over a range of places: `start` is where `low` is drawn, `end` where `high` is."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a value; what lies beyond the axis is at its end."""
        low, high, value = (self._moved(one) for one in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def _moved(self, value: float) -> float:
        return math.log(max(value, 1e-300)) if self.axis.logarithmic else value

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels, apart from each other."""
        found = _logarithmic(self.low, self.high, self.axis.unit) if self.axis.logarithmic else _linear(self)
        return [(self.at(value), _label(value / self.axis.unit)) for value in found]


def build_scale(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that holds all values; a linear one begins at zero.

    values : at least one; positive where the axis is logarithmic
    """
    if axis.logarithmic:
        positive = [value for value in values if value > 0] or [axis.unit]
        room = 1.15  # so that no point lies on the frame
        return Scale(axis, min(positive) / room, max(positive) * room, start, end)
    most = max([*values, 0.0]) or axis.unit
    step = _step(most / axis.unit / (MOST_TICKS - 1))
    return Scale(axis, 0.0, max(math.ceil(most / axis.unit / step - 1e-9) * step * axis.unit, most), start, end)


def _label(value: float) -> str:
    """A tick in as few digits as it has: 0.3, 2.5, 1,000."""
    if value and not LEAST_DIGITS <= abs(value) < BEYOND_WORDS:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _step(raw: float) -> float:
    """The next round number."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * each for each in _ROUND if power * each >= raw * (1 - 1e-9))


def _linear(scale: Scale) -> list[float]:
    unit, span = scale.axis.unit, abs(scale.end - scale.start)
    step = _step((scale.high - scale.low) / unit / (MOST_TICKS - 1)) * unit
    while True:
        count = int(scale.high / step + 1e-9)
        found = [place * step for place in range(count + 1)]
        widest = max(text_width(_label(value / unit)) for value in found)
        if len(found) <= 2 or widest + GAP <= span * step / (scale.high - scale.low):
            return found
        step *= 2


def _logarithmic(low: float, high: float, unit: float) -> list[float]:
    for digits in _DECADES:
        powers = range(math.floor(math.log10(low / unit)), math.ceil(math.log10(high / unit)) + 1)
        values = (digit * 10.0**power for power in powers for digit in digits)
        found = [value for value in values if low / unit <= value <= high / unit]
        if 2 <= len(found) <= MOST_TICKS:
            return [value * unit for value in found]
    if len(found) > MOST_TICKS:
        return [value * unit for value in found[:: math.ceil(len(found) / MOST_TICKS)]]
    return [low * 1.15, high / 1.15] if high > low * 1.5 else [math.sqrt(low * high)]


# Frames: the axis below, lines across and upwards with their labels.

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


# Bars with their ranges, below each other against lines.

BAR_HEIGHT = 14.0  # of a bar
BELOW = 9.0  # between a bar and the next text
FARTHEST = 8.0  # times the longest bar: a mark beyond is said, not drawn
BEYOND = 1.05  # of a mark, that the axis shows
EDGE = 8.0  # on both sides of the plot, for the outer halves of labels


def draw_bars(bars: Bars) -> Drawn:
    """Each bar below its name and value, with its range as a whisker."""
    ends = [value for bar in bars.bars for value in (bar.value, bar.high) if value is not None]
    near = [mark.value for mark in bars.marks if mark.value <= FARTHEST * max(ends, default=mark.value)]
    scale = build_scale(bars.axis, [*ends, *(BEYOND * value for value in near)], EDGE, WIDTH - EDGE)
    labels, top = mark_rows(bars.marks, scale, 0.0)
    rows: list[Shape] = []
    bottom = top
    for bar in bars.bars:
        texts = list(_texts(bar, bottom))
        bottom = max(text.y for text in texts) + 5
        rows += [*_bar(bar, scale, bottom), *texts]
        bottom += BAR_HEIGHT + BELOW
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
    yield Rect(
        scale.start, top, max(scale.at(bar.value) - scale.start, 1.0), BAR_HEIGHT, "fill", f"{bar.name}: {bar.text}"
    )
    if bar.low is not None and bar.high is not None:
        yield whisker(scale.at(bar.low), scale.at(bar.high), top + BAR_HEIGHT / 2, 5.0)


# Plots over two axes.

PLOT_HEIGHT = 230.0  # of the plot
_INNER = 6.0
_FARTHEST_ROW = 8


class Plot(Immutable):
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
    bottom = top + PLOT_HEIGHT
    upwards = build_scale(up, ys, bottom, top + _INNER)
    margin = max((text_width(label, SIZE) for _, label in upwards.ticks()), default=0.0)
    return Plot(build_scale(across, xs, margin + GAP, WIDTH - EDGE), upwards, top, bottom)


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


# Tornado: factors by how far they move a figure to both sides.

_ROW_HEIGHT = ROW + BAR_HEIGHT + ROW + 6
_SMALL = 11.0


def draw_tornado(tornado: Tornado) -> Drawn:
    """A bar for each factor to both sides of the middle: its name above, the steps of its ends below."""
    values = [value for swing in tornado.swings for value in (swing.low, swing.high)]
    scale = build_scale(tornado.axis, [*values, 1.0, 0.8, 1.25], EDGE, WIDTH - EDGE)
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
        yield Rect(left, bar_top, middle - left, BAR_HEIGHT, "less", swing.low_text)
    if right - middle > 0.5:
        yield Rect(middle, bar_top, right - middle, BAR_HEIGHT, "more", swing.high_text)
    if right - left <= 1.0:
        yield Stroke((((middle, bar_top), (middle, bar_top + BAR_HEIGHT)),), "whisker")
    yield from _ends(swing, scale, bar_top + BAR_HEIGHT + ROW - 5)


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


# Stack: parts of a whole beside each other in one bar, numbered, with a legend.

STACK_HEIGHT = 34.0  # of the bar
LEGEND_ROW = 19.0
SWATCH = 14.0
STACK_COLOURS = 8
_STACK_NUMBER = 11.0


def draw_stack(stack: Stack) -> Drawn:
    """The bar below its marks, the axis, then a line for each part and one for the whole."""
    values = [stack.whole.value, *(BEYOND * mark.value for mark in stack.marks)]
    scale = build_scale(stack.axis, values, EDGE, WIDTH - EDGE)
    labels, top = mark_rows(stack.marks, scale, 0.0)
    bar_top = top + 4
    bottom = bar_top + STACK_HEIGHT + 4
    legend_top = bottom + AXIS_HEIGHT + 10
    shapes = (
        *axis_below(scale, top, bottom),
        *_segments(stack, scale, bar_top),
        *mark_lines(stack.marks, scale, top, bottom),
        *labels,
        *_stack_legend(stack, legend_top),
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
        yield Rect(left, top, max(right - left - gap, 0.5), STACK_HEIGHT, f"c{place % STACK_COLOURS + 1}", says)
        if right - left > text_width(str(place + 1), _STACK_NUMBER, True) + 4:
            x, y = (left + right - gap) / 2, top + STACK_HEIGHT / 2 + 4
            yield Text(x, y, str(place + 1), "middle", "on", _STACK_NUMBER)
    if stack.over is not None and stack.whole.value > stack.over:
        x = scale.at(stack.over)
        yield Rect(x, top - 2, scale.at(stack.whole.value) - x, STACK_HEIGHT + 4, "over", "more than there is")


def _stack_legend(stack: Stack, top: float) -> Iterator[Shape]:
    values = [text_width(part.text, SIZE, True) for part in (*stack.parts, stack.whole)]
    shares = [text_width(part.share, SIZE) for part in (*stack.parts, stack.whole)]
    value_end = WIDTH - EDGE - (max(shares) + 2 * GAP if any(shares) else 0.0)
    room = value_end - max(values) - GAP - EDGE - SWATCH - GAP
    for place, part in enumerate(stack.parts):
        y = top + LEGEND_ROW * (place + 1) - 6
        yield Rect(EDGE, y - 11, SWATCH, SWATCH, f"c{place % STACK_COLOURS + 1}")
        yield Text(EDGE + SWATCH / 2, y - 0.5, str(place + 1), "middle", "on", _STACK_NUMBER - 1.5)
        yield from _entry(part, y, value_end, room, "t")
    y = top + LEGEND_ROW * (len(stack.parts) + 1) - 6
    yield Rect(EDGE, y - 14, WIDTH - 2 * EDGE, 1.0, "rule")
    yield from _entry(stack.whole, y, value_end, room, "b")


def _entry(part: Part, y: float, value_end: float, room: float, style: str) -> Iterator[Text]:
    yield Text(EDGE + SWATCH + GAP, y, fitted(part.name, room, SIZE, style == "b"), "start", style)
    yield Text(value_end, y, part.text, "end", "b")
    if part.share:
        yield Text(WIDTH - EDGE, y, part.share, "end", "s")


# Strip: many verdicts in little room, a numbered cell each.

CELL, SPACE = 30.0, 5.0
ACROSS = int((WIDTH + SPACE) // (CELL + SPACE))
_STRIP_NUMBER = 10.0
# Signs as lines in a square of one.
_SIGNS: dict[Tone, tuple[tuple[tuple[float, float], ...], ...]] = {
    "yes": (((0.1, 0.55), (0.4, 0.85), (0.9, 0.15)),),
    "caution": (((0.5, 0.1), (0.5, 0.6)), ((0.5, 0.8), (0.5, 0.9))),
    "no": (((0.15, 0.15), (0.85, 0.85)), ((0.85, 0.15), (0.15, 0.85))),
    "unknown": (((0.2, 0.3), (0.5, 0.1), (0.8, 0.3), (0.5, 0.6)), ((0.5, 0.8), (0.5, 0.9))),
    "": (((0.2, 0.5), (0.8, 0.5)),),
}


def draw_strip(strip: Strip) -> Drawn:
    """Cells in rows, in the order of their table, then a line for each sign that occurs."""
    shapes: list[Shape] = []
    for place, cell in enumerate(strip.cells):
        x, y = (place % ACROSS) * (CELL + SPACE), (place // ACROSS) * (CELL + SPACE)
        shapes += _cell(x, y, cell.tone, cell.says)
        shapes.append(Text(x + CELL / 2, y + CELL - 3, str(place + 1), "middle", f"on-{cell.tone}", _STRIP_NUMBER))
    height = -(-len(strip.cells) // ACROSS) * (CELL + SPACE)
    legend = list(_strip_legend(strip, height + 6))
    return Drawn((*shapes, *legend), height + 6 + ROW * max(1, sum(isinstance(each, Text) for each in legend)) + 4)


def _cell(x: float, y: float, tone: Tone, says: str) -> Iterator[Shape]:
    yield Rect(x, y, CELL, CELL, f"cell-{tone}", says)
    yield _sign(x + 9, y + 4, 12.0, tone, f"sign-{tone}")


def _sign(x: float, y: float, size: float, tone: Tone, style: str) -> Stroke:
    return Stroke(tuple(tuple((x + a * size, y + b * size) for a, b in part) for part in _SIGNS[tone]), style)


def _strip_legend(strip: Strip, top: float) -> Iterator[Shape]:
    """Signs that occur, with their number and meaning, beside each other as far as there is room."""
    counts = Counter(cell.tone for cell in strip.cells)
    x, y = 0.0, top + ROW - 4
    for tone, meaning in strip.legend:
        if not counts[tone]:
            continue
        words = fitted(f"{counts[tone]} {meaning}", WIDTH - 20)
        if x and x + 18 + text_width(words, SIZE) > WIDTH:
            x, y = 0.0, y + ROW + 2
        yield _sign(x + 1, y - 10, 11.0, tone, f"key-{tone}")
        yield Text(x + 18, y, words)
        x += 18 + text_width(words, SIZE) + 2 * GAP


# Chart: points over two axes, those that matter named, each with its range.

_RADII = (2.5, 4.5, 6.0)  # of markers, by rank
_DIRECTIONS = 16
_REACH = (9.0, 14.0, 22.0, 34.0, 50.0, 70.0, 95.0)  # how far from its point a name may stand
_LEADER = 16.0  # from here on a line leads to it
# Corners of the markers of kinds, in a circle of one.
_CORNERS = ((12, 0.0), (4, 0.125), (3, 0.25), (4, 0.0), (3, 0.75), (5, 0.25), (6, 0.0))


def draw_chart(chart: Chart) -> Drawn:
    """Points of many below those that stand out, names where they meet nothing, then the legend."""
    heights = [value for p in chart.points for value in (p.up, p.low, p.high) if value is not None]
    near = [mark.value for mark in chart.marks if min(heights) / 4 <= mark.value <= 4 * max(heights)]
    widths = [point.across for point in chart.points]
    if chart.diagonal:
        widths = heights = [*widths, *heights]
    widths, heights = [*widths, *(x for x, _ in chart.roof)], [*heights, *(y for _, y in chart.roof)]
    area = plot(chart.across, chart.up, widths, [*heights, *near])
    lines, labels = marks_across(area, chart.marks)
    ranked = sorted(chart.points, key=lambda point: point.rank)
    points = [shape for point in ranked for shape in _point(point, area)]
    heights_of_marks = [area.up.at(mark.value) for mark in chart.marks]
    names = list(_names(chart.points, area, [text.box for text in labels], heights_of_marks))
    legend, bottom = _chart_legend(chart, area.height + 4)
    low, high = max(area.across.low, area.up.low), min(area.across.high, area.up.high)
    diagonal = [line(*area.at(low, low), *area.at(high, high), "middle")] if chart.diagonal else []
    roof = [Stroke((tuple(area.at(x, y) for x, y in chart.roof),), "middle")] if chart.roof else []
    return Drawn((*frame(area), *diagonal, *roof, *lines, *points, *labels, *names, *legend), bottom)


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
        distance = math.dist((x, y), _nearest(found.box, x, y))
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


def _chart_legend(chart: Chart, top: float) -> tuple[list[Shape], float]:
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


# Style, for light and dark pages and for paper.
#
# Every colour of a part is at least 4.5 to 1 against the number written on it, every line at least 3 to 1 against the
# page (WCAG 2.2, 1.4.3 and 1.4.11).

LIGHT = (
    "--ink: #1a1c20; --soft: #565d69; --line: #d8dce3; --axis: #7a828f; --page: #fff; --on: #fff; --fill: #9fc2ea; "
    "--best: #1f5fa8; --more: #e0a06a; --less: #9fc2ea; --yes: #17753a; --caution: #8a5a00; --no: #b3261e; "
    "--c1: #1f5fa8; --c2: #a8480f; --c3: #237044; --c4: #74459b; --c5: #7d6000; --c6: #0b6d77; --c7: #a0336a; "
    "--c8: #5c6470;"
)
DARK = (
    "--ink: #e6e8ec; --soft: #a4adba; --line: #363c46; --axis: #7f8896; --page: #16181c; --on: #16181c; "
    "--fill: #2f5f96; --best: #7db4ee; --more: #8d5a2a; --less: #2f5f96; --yes: #57c27d; --caution: #e3b341; "
    "--no: #f28b82; --c1: #7db4ee; --c2: #f0a36b; --c3: #74cf99; --c4: #c3a0e6; --c5: #e0c050; --c6: #67cdd6; "
    "--c7: #f09ac0; --c8: #a8b0bd;"
)
COLOURS = f":root {{ {LIGHT} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"
ALONE = f"""
{COLOURS}.paper {{ fill: var(--page); }}
"""
STYLE = (
    """
.picture text { font-family: system-ui, sans-serif; fill: var(--ink); stroke: var(--page); stroke-width: 3px;
  stroke-linejoin: round; paint-order: stroke; }
.picture text.b { font-weight: 600; } .picture text.s { fill: var(--soft); }
.picture text.on, .picture text[class^="on-"] { fill: var(--on); stroke: none; font-weight: 600; }
.picture path { fill: none; stroke: var(--axis); stroke-width: 1; }
.picture .grid { stroke: var(--line); } .picture .axis { stroke: var(--axis); }
.picture .rule { fill: var(--line); } .picture .leader { stroke: var(--soft); stroke-width: .8; }
.picture .mark { stroke: var(--no); stroke-width: 1.6; stroke-dasharray: 5 3; }
.picture .middle { stroke: var(--ink); stroke-width: 1.2; }
.picture .whisker { stroke: var(--ink); stroke-width: 1.4; }
.picture .fill { fill: var(--fill); } .picture .less { fill: var(--less); } .picture .more { fill: var(--more); }
.picture .over { fill: none; stroke: var(--no); stroke-width: 2.5; }
.picture .p0 { fill: var(--page); stroke: var(--soft); opacity: .55; }
.picture .p1 { fill: var(--best); stroke: var(--page); }
.picture .p2 { fill: var(--no); stroke: var(--ink); stroke-width: 1.6; }
.picture .l0 { stroke: var(--c1); stroke-width: 2; }
.picture .l1 { stroke: var(--c2); stroke-width: 2; stroke-dasharray: 7 3; }
.picture .l2 { stroke: var(--c3); stroke-width: 2; stroke-dasharray: 2 3; }
.picture .l3 { stroke: var(--c4); stroke-width: 2; stroke-dasharray: 8 3 2 3; }
"""
    + "".join(f".picture .c{place} {{ fill: var(--c{place}); }}\n" for place in range(1, 9))
    + "".join(
        f".picture .cell-{tone} {{ fill: var(--{colour}); }} .picture .sign-{tone} {{ stroke: var(--on); "
        f"stroke-width: 2; }} .picture .key-{tone} {{ stroke: var(--{colour}); stroke-width: 2.2; }}\n"
        for tone, colour in (("yes", "yes"), ("caution", "caution"), ("no", "no"), ("unknown", "c4"), ("", "c8"))
    )
)


# Curves over two axes, each named at its end.

_SAMPLE = 26.0  # length of a line in the legend


def draw_curves(curves: Curves) -> Drawn:
    """Lines told apart by their dashes, below a legend; loads that are asked as lines upwards."""
    xs = [x for each in curves.lines for x, _ in each.points]
    ys = [y for each in curves.lines for _, y in each.points]
    most = max(ys)
    near = [mark.value for mark in curves.marks if mark.value <= 8 * most]
    rows = mark_rows(curves.asked, plot(curves.across, curves.up, xs, [*ys, *near]).across, 0.0)[1]
    area = plot(curves.across, curves.up, [*xs, *(mark.value for mark in curves.asked)], [*ys, *near], rows)
    asked, _ = mark_rows(curves.asked, area.across, ROW + 4)
    across, labels = marks_across(area, curves.marks, ("start", "end"))
    legend, bottom = _curves_legend(curves, area.height + 4)
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


def _curves_legend(curves: Curves, top: float) -> tuple[list[Shape], float]:
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


# The picture: text that a page holds, or a file of its own.

FILE_WIDTH = 600.0  # pixels, where nobody says another width
MARGIN = 12.0  # around a picture in a file of its own
_TITLE_ROW = 26.0
_DRAW: dict[type, Callable[[Any], Drawn]] = {
    Stack: draw_stack,
    Bars: draw_bars,
    Chart: draw_chart,
    Tornado: draw_tornado,
    Curves: draw_curves,
    Strip: draw_strip,
}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def drawn(picture: Picture) -> Drawn:
    """The shapes of a picture."""
    return _DRAW[type(picture.drawing)](picture.drawing)


def svg(picture: Picture, name: str) -> str:
    """The picture as an element of a page, whose style sheet has STYLE. name : of the picture in the page"""
    found = drawn(picture)
    return _element(picture, found.shapes, f"0 0 {_n(WIDTH)} {_n(found.height)}", name, "")


def svg_file(picture: Picture) -> str:
    """The picture as a file of its own, with its title, its note and its colours."""
    found = drawn(picture)
    title = Text(0.0, -10.0, picture.title, "start", "b", 1.2 * SIZE)
    box = f"{_n(-MARGIN)} {_n(-_TITLE_ROW - MARGIN)}"
    size = f"{_n(WIDTH + 2 * MARGIN)} {_n(found.height + _TITLE_ROW + 2 * MARGIN)}"
    paper = Rect(-MARGIN, -_TITLE_ROW - MARGIN, WIDTH + 2 * MARGIN, found.height + _TITLE_ROW + 2 * MARGIN, "paper")
    style = f"<style>{ALONE}{STYLE}</style>\n"
    element = _element(picture, (paper, title, *found.shapes), f"{box} {size}", "picture", style)
    return element.replace("<svg ", f'<svg width="{_n(FILE_WIDTH)}" ', 1) + "\n"


def _element(picture: Picture, shapes: tuple[Shape, ...], box: str, name: str, style: str) -> str:
    body = "\n".join(map(_shape, shapes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="{box}" font-size="{_n(SIZE)}" role="img" '
        f'aria-labelledby="{name}-title {name}-says">\n'
        f'<title id="{name}-title">{_text(picture.title)}</title>\n'
        f'<desc id="{name}-says">{_text(picture.says)}</desc>\n{style}{body}\n</svg>'
    )


def _shape(shape: Shape) -> str:
    match shape:
        case Text():
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            size = "" if shape.size == SIZE else f' font-size="{_n(shape.size)}"'
            place = f'x="{_n(shape.x)}" y="{_n(shape.y)}"'
            return f'<text class="{shape.style}" {place}{anchor}{size}>{_text(shape.text)}</text>'
        case Rect():
            place = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" height="{_n(shape.height)}"'
            return _said(f'rect class="{shape.style}" {place}', "rect", shape.says)
        case Stroke():
            lines = "".join("M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in part) for part in shape.lines)
            return _said(f'path class="{shape.style}" d="{lines}{"Z" * shape.closed}"', "path", shape.says)


def _said(element: str, name: str, says: str) -> str:
    return f"<{element}><title>{_text(says)}</title></{name}>" if says else f"<{element}/>"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _n(value: float) -> str:
    """A coordinate with a decimal at most."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"
