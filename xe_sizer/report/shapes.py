"""What pictures are made of: texts, lines, boxes and paths with known boxes, scales, and frames around plots.

Sizes are in units of a picture, which is WIDTH units wide, so that no text meets another or leaves the picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from xe_sizer.immutable import Immutable
from xe_sizer.report.format import BEYOND_WORDS

if TYPE_CHECKING:
    from xe_sizer.report.picture import Axis, Mark


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
BOLD = 1.12
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
    return ems * size * (BOLD if bold else 1.0)


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
EDGE = 8.0  # on both sides of the plot, for the outer halves of labels


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


_CLEAR = 4.0  # between a text and the end of a line, which would seem to run on through it


def mark_lines(
    marks: Iterable[Mark], scale: Scale, top: float, bottom: float, texts: Iterable[Text] = ()
) -> Iterator[Stroke]:
    """Lines upwards at the marks that the axis shows, broken well above and below texts that they would run through."""
    boxes = sorted((text.box for text in texts), key=lambda box: box.top)
    for mark in marks:
        if mark.value <= scale.high:
            x, start = scale.at(mark.value), top
            for box in boxes:
                if box.left - GAP < x < box.right + GAP:
                    if box.top - _CLEAR > start:
                        yield line(x, start, x, box.top - _CLEAR, "mark")
                    start = max(start, box.bottom + _CLEAR)
            if bottom > start:
                yield line(x, start, x, bottom, "mark")


def whisker(x1: float, x2: float, y: float, half: float) -> Stroke:
    """A range along a line: ends and what lies between."""
    return Stroke((((x1, y - half), (x1, y + half)), ((x1, y), (x2, y)), ((x2, y - half), (x2, y + half))), "whisker")


def whisker_up(x: float, y1: float, y2: float, half: float) -> Stroke:
    return Stroke((((x - half, y1), (x + half, y1)), ((x, y1), (x, y2)), ((x - half, y2), (x + half, y2))), "whisker")


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


def crosses(stroke: Stroke, box: Box) -> bool:
    """Whether a path of straight lines has a point inside a box (Liang and Barsky 1984)."""
    return any(_is_inside(a, b, box) for part in stroke.lines for a, b in pairwise(part))


def _is_inside(a: tuple[float, float], b: tuple[float, float], box: Box) -> bool:
    first, last = 0.0, 1.0
    across, up = b[0] - a[0], b[1] - a[1]
    sides = (-across, a[0] - box.left), (across, box.right - a[0]), (-up, a[1] - box.top), (up, box.bottom - a[1])
    for step, room in sides:
        if step == 0 and room <= 0:
            return False
        if step < 0:
            first = max(first, room / step)
        elif step > 0:
            last = min(last, room / step)
    return first < last


def marks_across(
    plot: Plot, marks: Sequence[Mark], ends: Sequence[Anchor] = ("end", "start"), curves: Sequence[Stroke] = ()
) -> tuple[list[Shape], list[Text]]:
    """Lines at heights, and their labels beside them, apart from each other and, where there is room, from curves.

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
        free = [text for text in _labels(mark, y, plot, ends) if not any(text.box.meets(other.box) for other in texts)]
        clear = (text for text in free if not any(crosses(curve, text.box) for curve in curves))
        texts += islice(chain(clear, free), 1)
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
