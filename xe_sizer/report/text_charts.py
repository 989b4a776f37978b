"""Charts of letters and signs, for terminals and Markdown: bars, curves of plans, and scatters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.document import Figure

if TYPE_CHECKING:
    from xe_sizer.report.document import Table

Point = tuple[float, float, bool]
"""Across, up, and whether it is Pareto-optimal."""

# Bars of text.

MARK = "│"
LEAST_CELLS = 4  # fewer show nothing, however narrow the terminal


def cells_within(width: int | None, beside: int, most: int) -> int:
    """Characters across for a figure.

    width : columns of the terminal, None off one; beside : what its lines hold besides; most : where there is room
    """
    return most if width is None else max(LEAST_CELLS, min(most, width - beside))


def bar_text(table: Table, place: int, cells: int) -> str:
    """The bar of the row at `place`: whole and half cells, and the mark of a chart at the share 1."""
    share, scale = table.shares[place], table.bar_scale
    halves = 0 if share is None else round(2 * cells * min(max(share / scale, 0.0), 1.0))
    bar = "█" * (halves // 2) + "▌" * (halves % 2)
    if not table.mark:
        return bar
    limit = round(cells / scale)
    bar = bar.ljust(cells)
    return f"{bar[:limit]}{MARK}{bar[limit:]}".rstrip()


def gauge(share: float, cells: int) -> str:
    """A bar whose empty part is drawn too."""
    full = min(max(round(cells * share), 0), cells)
    return "█" * full + "░" * (cells - full)


# Chart in characters: points over two logarithmic axes.

CHART_COLUMNS, CHART_ROWS = 60, 12
BEST, OTHER = "●", "·"
LEAST_POINTS = 4
AXES = "GPUs to the right, both axes logarithmic"


def chart(
    title: str, points: Sequence[Point], across: Callable[[float], str], up: Callable[[float], str],
    axes: str = AXES, width: int | None = None,
) -> Figure | None:  # fmt: skip
    """None where there are too few different points to see anything. width : columns of the terminal, None off one."""
    if len({point[0] for point in points}) < LEAST_POINTS:
        return None
    xs, ys = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    ends = (up(math.exp(min(ys))), up(math.exp(max(ys))))
    margin = max(map(len, ends))
    columns = cells_within(width, margin + 2, CHART_COLUMNS)
    grid = [[" "] * columns for _ in range(CHART_ROWS)]
    for (_, _, best), x, y in sorted(zip(points, xs, ys, strict=True), key=lambda entry: entry[0][2]):
        grid[_cell(y, ys, CHART_ROWS)][_cell(x, xs, columns)] = BEST if best else OTHER
    labels = [ends[1], *[""] * (CHART_ROWS - 2), ends[0]]
    lines = [f"{label:>{margin}} │{''.join(row).rstrip()}" for label, row in zip(labels, reversed(grid), strict=True)]
    lines.append(" " * (margin + 1) + "└" + "─" * columns)
    first, last = across(math.exp(min(xs))), across(math.exp(max(xs)))
    lines.append(" " * (margin + 2) + first + last.rjust(columns - len(first)))
    return Figure(title, tuple(lines), f"{axes}; {BEST} Pareto-optimal")


def _cell(value: float, values: Sequence[float], cells: int) -> int:
    span = max(values) - min(values) or 1.0
    return min(int((value - min(values)) / span * cells), cells - 1)


# Scatter in characters: predicted over measured values.

SCATTER_COLUMNS, SCATTER_ROWS = 56, 17
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
    columns = cells_within(width, margin + 2, SCATTER_COLUMNS)

    def cell(value: float, cells: int) -> int:
        return min(int((value - low) / span * cells), cells - 1)

    counts = Counter((cell(predicted, SCATTER_ROWS), cell(measured, columns)) for measured, predicted in logs)
    rows = []
    for row in reversed(range(SCATTER_ROWS)):
        on_diagonal = {column for column in range(columns) if column * SCATTER_ROWS // columns == row}
        rows.append("".join(_mark(counts[row, column], column in on_diagonal) for column in range(columns)).rstrip())
    labels = [ends[1], *[""] * (SCATTER_ROWS - 2), ends[0]]
    lines = [f"{label:>{margin}} │{row}" for label, row in zip(labels, rows, strict=True)]
    lines.append(" " * (margin + 1) + "└" + "─" * columns)
    lines.append(" " * (margin + 2) + ends[0] + ends[1].rjust(columns - len(ends[0])))
    note = "predicted upwards, measured to the right; on the line they agree. · one run, o up to four, █ more"
    return Figure(title, tuple(lines), note)


def _mark(count: int, on_diagonal: bool) -> str:
    if not count:
        return DIAGONAL if on_diagonal else " "
    return next(mark for most, mark in MARKS if count <= most)
