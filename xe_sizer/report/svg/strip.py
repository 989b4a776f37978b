"""Many verdicts in little room: a numbered cell each, and what the signs mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.svg.frame import ROW
from xe_sizer.report.svg.scale import GAP
from xe_sizer.report.svg.shapes import SIZE, WIDTH, Drawn, Rect, Stroke, Text, fitted, text_width

if TYPE_CHECKING:
    from xe_sizer.report.picture import Strip, Tone
    from xe_sizer.report.svg.shapes import Shape

CELL, SPACE = 30.0, 5.0
ACROSS = int((WIDTH + SPACE) // (CELL + SPACE))
_NUMBER = 10.0
# Signs as lines in a square of one.
_SIGNS: dict[Tone, tuple[tuple[tuple[float, float], ...], ...]] = {
    "yes": (((0.1, 0.55), (0.4, 0.85), (0.9, 0.15)),),
    "caution": (((0.5, 0.1), (0.5, 0.6)), ((0.5, 0.8), (0.5, 0.9))),
    "no": (((0.15, 0.15), (0.85, 0.85)), ((0.85, 0.15), (0.15, 0.85))),
    "unknown": (((0.2, 0.3), (0.5, 0.1), (0.8, 0.3), (0.5, 0.6)), ((0.5, 0.8), (0.5, 0.9))),
    "": (((0.2, 0.5), (0.8, 0.5)),),
}


def draw(strip: Strip) -> Drawn:
    """Cells in rows, in the order of their table, then a line for each sign that occurs."""
    shapes: list[Shape] = []
    for place, cell in enumerate(strip.cells):
        x, y = (place % ACROSS) * (CELL + SPACE), (place // ACROSS) * (CELL + SPACE)
        shapes += _cell(x, y, cell.tone, cell.says)
        shapes.append(Text(x + CELL / 2, y + CELL - 3, str(place + 1), "middle", f"on-{cell.tone}", _NUMBER))
    height = -(-len(strip.cells) // ACROSS) * (CELL + SPACE)
    legend = list(_legend(strip, height + 6))
    return Drawn((*shapes, *legend), height + 6 + ROW * max(1, sum(isinstance(each, Text) for each in legend)) + 4)


def _cell(x: float, y: float, tone: Tone, says: str) -> Iterator[Shape]:
    yield Rect(x, y, CELL, CELL, f"cell-{tone}", says)
    yield _sign(x + 9, y + 4, 12.0, tone, f"sign-{tone}")


def _sign(x: float, y: float, size: float, tone: Tone, style: str) -> Stroke:
    return Stroke(tuple(tuple((x + a * size, y + b * size) for a, b in part) for part in _SIGNS[tone]), style)


def _legend(strip: Strip, top: float) -> Iterator[Shape]:
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
