"""Predicted over measured values as a figure of characters, both axes logarithmic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from xe_sizer.report.bars import cells_within
from xe_sizer.report.document import Figure

COLUMNS, ROWS = 56, 17
MARKS = ((1, "·"), (4, "o"), (math.inf, "█"))  # up to so many points in a cell
DIAGONAL = "─"


def scatter(
    title: str, points: Sequence[tuple[float, float]], show: Callable[[float | bool], str], width: int | None = None
) -> Figure | None:
    """Points (measured, predicted), both positive; None where there are too few to see anything.

    show : how a value is written at the ends of the axes
    width : columns of the terminal, None off one
    """
    if len(points) < 3:
        return None
    logs = [(math.log(measured), math.log(predicted)) for measured, predicted in points]
    low = min(min(pair) for pair in logs)
    span = max(max(pair) for pair in logs) - low or 1.0
    ends = (show(math.exp(low)), show(math.exp(low + span)))
    margin = max(map(len, ends))
    columns = cells_within(width, margin + 2, COLUMNS)

    def cell(value: float, cells: int) -> int:
        return min(int((value - low) / span * cells), cells - 1)

    counts = Counter((cell(predicted, ROWS), cell(measured, columns)) for measured, predicted in logs)
    rows = []
    for row in reversed(range(ROWS)):
        on_diagonal = {column for column in range(columns) if column * ROWS // columns == row}
        rows.append("".join(_mark(counts[row, column], column in on_diagonal) for column in range(columns)).rstrip())
    labels = [ends[1], *[""] * (ROWS - 2), ends[0]]
    lines = [f"{label:>{margin}} │{row}" for label, row in zip(labels, rows, strict=True)]
    lines.append(" " * (margin + 1) + "└" + "─" * columns)
    lines.append(" " * (margin + 2) + ends[0] + ends[1].rjust(columns - len(ends[0])))
    note = "predicted upwards, measured to the right; on the line they agree. · one run, o up to four, █ more"
    return Figure(title, tuple(lines), note)


def _mark(count: int, on_diagonal: bool) -> str:
    if not count:
        return DIAGONAL if on_diagonal else " "
    return next(mark for most, mark in MARKS if count <= most)
