"""Pictures as SVG: each kind drawn as shapes, and these written as an element of a page or a file of its own."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.report.picture import Bars, Chart, Curves, Rows, Schedule, Stack, Strip, Tornado
from xe_sizer.report.shapes import (
    AXIS_HEIGHT,
    BOLD,
    EDGE,
    GAP,
    ROW,
    SIZE,
    WIDTH,
    Box,
    Drawn,
    Rect,
    Stroke,
    Text,
    axis_below,
    build_scale,
    crosses,
    fitted,
    frame,
    line,
    mark_lines,
    mark_rows,
    marks_across,
    plot,
    text_width,
    whisker,
    whisker_up,
    within,
    wrapped,
)

if TYPE_CHECKING:
    from xe_sizer.report.document import Picture
    from xe_sizer.report.picture import Bar, Lane, Line, Part, Piece, Point, Swing, Tone
    from xe_sizer.report.shapes import Plot, Scale, Shape


# Bars with their ranges, below each other against lines.

BAR_HEIGHT = 14.0  # of a bar
BELOW = 9.0  # between a bar and the next text
FARTHEST = 8.0  # times the longest bar: a mark beyond is said, not drawn
BEYOND = 1.05  # of a mark, that the axis shows


def draw_bars(bars: Bars) -> Drawn:
    """Each bar below its name and value, with its range as a whisker; a dot at the value where the axis has no zero."""
    ends = [value for bar in bars.bars for value in (bar.value, bar.high) if value is not None]
    if bars.axis.logarithmic:
        ends += [bar.low for bar in bars.bars if bar.low is not None]
    near = [mark.value for mark in bars.marks if mark.value <= FARTHEST * max(ends, default=mark.value)]
    scale = build_scale(bars.axis, [*ends, *(BEYOND * value for value in near)], EDGE, WIDTH - EDGE)
    labels, top = mark_rows(bars.marks, scale, 0.0)
    rows: list[Shape] = []
    bottom = top
    for bar in bars.bars:
        texts = list(_texts(bar.name, bar.text, bottom, bar.chosen))
        bottom = max(text.y for text in texts) + 5
        rows += [*_bar(bar, scale, bottom), *texts]
        bottom += BAR_HEIGHT + BELOW
    texts = [shape for shape in rows if isinstance(shape, Text)]
    lines = mark_lines(bars.marks, scale, top, bottom, texts)
    shapes = (*axis_below(scale, top, bottom), *lines, *rows, *labels)
    return Drawn(shapes, bottom + AXIS_HEIGHT)


def _texts(name: str, text: str, top: float, chosen: bool = False) -> Iterator[Text]:
    """The name, and the value beside its last line where that has room, else below it."""
    room = WIDTH - 2 * EDGE
    value = fitted(text, room, SIZE, True)
    names = wrapped(name, room / BOLD if chosen else room)
    for place, words in enumerate(names):
        yield Text(EDGE, top + ROW * (place + 1) - 4, words, style="b" if chosen else "t")
    if not value:
        return
    beside = text_width(names[-1], SIZE, chosen) + GAP + text_width(value, SIZE, True) <= room
    yield Text(WIDTH - EDGE, top + ROW * (len(names) + (not beside)) - 4, value, "end", "b")


def _bar(bar: Bar, scale: Scale, top: float) -> Iterator[Shape]:
    if bar.value is None:
        return
    end, middle, says = scale.at(bar.value), top + BAR_HEIGHT / 2, f"{bar.name}: {bar.text}"
    if not scale.axis.logarithmic:
        style = "chosen" if bar.chosen else "fill"
        yield Rect(scale.start, top, max(end - scale.start, 1.0), BAR_HEIGHT, style, says)
    if bar.low is not None and bar.high is not None:
        yield whisker(scale.at(bar.low), scale.at(bar.high), middle, 5.0)
    if scale.axis.logarithmic:
        yield _marker(end, middle, 0, 2 if bar.chosen else 1, says)


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


# Rows of pieces along one axis below each other, with a legend of what the colours mean.

PIECE_HEIGHT = 20.0
_PIECE_SIZE = 11.0  # of a name in its box


def draw_rows(pieces: Rows) -> Drawn:
    """The pieces of each row below its name and value, the axis, then what the colours mean."""
    ends = [piece.end for row in pieces.rows for piece in row.pieces]
    near = [mark.value for mark in pieces.marks if mark.value <= FARTHEST * max(ends, default=mark.value)]
    scale = build_scale(pieces.axis, [*ends, *(BEYOND * value for value in near)], EDGE, WIDTH - EDGE)
    labels, top = mark_rows(pieces.marks, scale, 0.0)
    rows: list[Shape] = []
    bottom = top
    for row in pieces.rows:
        names = list(_texts(row.name, row.text, bottom))
        bottom = max(text.y for text in names) + 5
        rows += [*names, *(shape for piece in row.pieces for shape in _piece(piece, scale, bottom))]
        bottom += PIECE_HEIGHT + BELOW
    lines = mark_lines(pieces.marks, scale, top, bottom, [shape for shape in rows if isinstance(shape, Text)])
    legend, end = _rows_legend(pieces, bottom + AXIS_HEIGHT + 4)
    return Drawn((*axis_below(scale, top, bottom), *rows, *lines, *labels, *legend), end)


def _piece(piece: Piece, scale: Scale, top: float) -> Iterator[Shape]:
    """A box from start to end, with its name where that has room."""
    left, right = scale.at(piece.start), scale.at(piece.end)
    gap = 1.0 if right - left > 3 else 0.0
    yield Rect(left, top, max(right - left - gap, 0.5), PIECE_HEIGHT, _colour(piece.kind), piece.says or piece.name)
    if piece.name and text_width(piece.name, _PIECE_SIZE, True) + 6 <= right - left:
        yield Text((left + right - gap) / 2, top + PIECE_HEIGHT / 2 + 4, piece.name, "middle", "on", _PIECE_SIZE)


def _colour(kind: int) -> str:
    return f"c{kind % STACK_COLOURS + 1}"


def _rows_legend(pieces: Rows, top: float) -> tuple[list[Shape], float]:
    """What the colours mean that occur."""
    occurring = {piece.kind for row in pieces.rows for piece in row.pieces}
    shapes, y = _beside(((_colour(kind), words) for kind, words in enumerate(pieces.kinds) if kind in occurring), top)
    return shapes, y + 6 if shapes else top


def _beside(entries: Iterable[tuple[str, str]], top: float) -> tuple[list[Shape], float]:
    """Styles and what they mean, beside each other as far as there is room; and where the last stands."""
    shapes: list[Shape] = []
    x, y = EDGE, top + ROW - 4
    for style, words in entries:
        shown = fitted(words, WIDTH - 2 * EDGE - SWATCH - GAP)
        wide = SWATCH + GAP + text_width(shown)
        if x > EDGE and x + wide > WIDTH - EDGE:
            x, y = EDGE, y + LEGEND_ROW
        middle = x + SWATCH / 2
        upright = line(middle, y - 12, middle, y + 3, style)
        shapes.append(upright if style == "mark" else Rect(x, y - 11, SWATCH, SWATCH, style))
        shapes.append(Text(x + SWATCH + GAP, y, shown))
        x += wide + 2 * GAP
    return shapes, y


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
_REACH = (9.0, 14.0, 22.0, 34.0, 50.0, 70.0, 95.0, 125.0)  # how far from its point a name may stand
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
    curves = [
        Stroke((tuple(area.at(*place) for place in each.points),), "curve", says=each.name) for each in chart.lines
    ]
    lines, labels = marks_across(area, chart.marks, curves=curves)
    ranked = sorted(chart.points, key=lambda point: point.rank)
    points = [shape for point in ranked for shape in _point(point, area)]
    heights_of_marks = [area.up.at(mark.value) for mark in chart.marks]
    names = list(_names(chart.points, area, [text.box for text in labels], heights_of_marks, curves))
    legend, bottom = _chart_legend(chart, area.height + 4)
    low, high = max(area.across.low, area.up.low), min(area.across.high, area.up.high)
    diagonal = [line(*area.at(low, low), *area.at(high, high), "middle")] if chart.diagonal else []
    roof = [Stroke((tuple(area.at(x, y) for x, y in chart.roof),), "middle")] if chart.roof else []
    return Drawn((*frame(area), *diagonal, *roof, *curves, *lines, *points, *labels, *names, *legend), bottom)


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


def _names(
    points: Sequence[Point], area: Plot, taken: Sequence[Box], lines: Sequence[float], curves: Sequence[Stroke] = ()
) -> Iterator[Shape]:
    """The names of points, the most important first, each at the nearest place that is free.

    taken : where texts stand; lines : heights of lines across, which names only meet where all else is taken, as they
    do curves
    """
    obstacles = [*taken, *(_around(area.at(p.across, p.up), _RADII[p.rank] + 1) for p in points if p.rank)]
    thin = [box for point in points if (box := _whisker_box(point, area))]
    thin += [Box(area.box.left, y - 1, area.box.right, y + 1) for y in lines]
    for point in sorted(points, key=lambda point: -point.rank):
        if not point.name:
            continue
        x, y = area.at(point.across, point.up)
        clear = [*obstacles, *thin]
        tries = ((clear, curves), (clear, ()), (obstacles, ()))
        found = next((text for each in tries if (text := _place(point, x, y, area, *each))), None)
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


def _place(
    point: Point, x: float, y: float, area: Plot, obstacles: Sequence[Box], curves: Sequence[Stroke] = ()
) -> Text | None:
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
            if not text.box.inside(room) or any(text.box.meets(box) for box in obstacles):
                continue
            if not any(crosses(curve, text.box) for curve in curves):
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
.picture .curve { stroke: var(--fill); stroke-width: 2; }
.picture .middle { stroke: var(--ink); stroke-width: 1.2; }
.picture .whisker { stroke: var(--ink); stroke-width: 1.4; }
.picture .fill { fill: var(--fill); } .picture .chosen { fill: var(--best); }
.picture .less { fill: var(--less); } .picture .more { fill: var(--more); }
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
    lines = [_line(each, place, area) for place, each in enumerate(curves.lines)]
    across, labels = marks_across(area, curves.marks, ("start", "end"), lines)
    legend, bottom = _curves_legend(curves, area.height + 4)
    shapes = (
        *frame(area),
        *across,
        *mark_lines(curves.asked, area.across, area.top, area.bottom),
        *lines,
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


# Schedule: who has how much when, a lane for each.

LANE = 26.0  # height of a lane, which is all that there is to share
_THIN = 3.0  # least height of a bar


def draw_schedule(schedule: Schedule) -> Drawn:
    """Each lane below its name: light where it may run, a bar where it does, as high as what it has of all."""
    start, end = EDGE, WIDTH - EDGE
    shapes: list[Shape] = []
    bottom = 0.0
    for place, lane in enumerate(schedule.lanes):
        texts = list(_lane_texts(lane, bottom))
        top = max(text.y for text in texts) + 5
        bottom = top + LANE
        shapes += [*_lane(lane, place, top, schedule.end, (start, end)), *texts]
        bottom += BELOW
    bottom -= BELOW
    ticks: list[Shape] = []
    last = -GAP
    for value, label in schedule.ticks:
        x = start + value / schedule.end * (end - start)
        text = within(Text(x, bottom + ROW, label, "middle", "s"))
        if text.box.left < last + GAP / 2:
            continue
        last = text.box.right
        ticks += [line(x, bottom, x, bottom + 4, "axis"), text]
    axis = line(start, bottom, end, bottom, "axis")
    legend, height = _lane_legend(schedule, bottom + ROW + 10)
    return Drawn((axis, *ticks, *shapes, *legend), height)


def _lane_texts(lane: Lane, top: float) -> Iterator[Text]:
    """The name, and what is said of it beside its last line where that has room, else below it."""
    room = WIDTH - 2 * EDGE
    names, said = wrapped(lane.name, room), wrapped(lane.text, room)
    for place, name in enumerate(names):
        yield Text(EDGE, top + ROW * (place + 1) - 4, name, "start", "b")
    beside = len(said) == 1 and text_width(names[-1], SIZE, True) + GAP + text_width(said[0]) <= room
    for place, words in enumerate(said):
        y = top + ROW * (len(names) + place + (not beside)) - 4
        yield Text(WIDTH - EDGE if beside else EDGE, y, words, "end" if beside else "start")


def _lane(lane: Lane, place: int, top: float, whole: float, ends: tuple[float, float]) -> Iterator[Shape]:
    start, end = ends

    def at(value: float) -> float:
        return start + min(max(value / whole, 0.0), 1.0) * (end - start)

    for begin, until in lane.open:
        if at(until) > at(begin):
            yield Rect(at(begin), top, at(until) - at(begin), LANE, "rule")
    style = {"no": "cell-no", "unknown": "rule"}.get(lane.tone, f"c{place % (STACK_COLOURS - 1) + 1}")
    for stay in lane.stays:
        left, right, height = at(stay.start), at(stay.end), max(stay.share * LANE, _THIN)
        yield Rect(left, top + LANE - height, max(right - left, 1.0), height, style, stay.says)
        if height > SIZE and right - left > text_width(stay.text, _STACK_NUMBER, True) + 4:
            on = "s" if style == "rule" else "on"
            yield Text((left + right) / 2, top + LANE - height / 2 + 4, stay.text, "middle", on, _STACK_NUMBER)
    if lane.by is not None and lane.by <= whole:
        yield line(at(lane.by), top - 2, at(lane.by), top + LANE, "mark")


def _lane_legend(schedule: Schedule, top: float) -> tuple[list[Shape], float]:
    """What is drawn."""
    due = any(lane.by is not None and lane.by <= schedule.end for lane in schedule.lanes)
    styles = {"c1": True, "rule": any(lane.open for lane in schedule.lanes), "mark": due}
    entries = zip(styles.items(), schedule.legend, strict=True)
    shapes, y = _beside(((style, words) for (style, drawn), words in entries if drawn), top)
    return shapes, y + 8


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
    Rows: draw_rows,
    Schedule: draw_schedule,
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
