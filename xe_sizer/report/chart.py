"""A figure of points over two logarithmic axes, the Pareto-optimal among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xe_sizer.report.bars import cells_within
from xe_sizer.report.document import Figure

COLUMNS, ROWS = 60, 12
BEST, OTHER = "●", "·"
LEAST_POINTS = 4
AXES = "GPUs to the right, both axes logarithmic"

Point = tuple[float, float, bool]  # across, up, whether it is Pareto-optimal


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
    columns = cells_within(width, margin + 2, COLUMNS)
    grid = [[" "] * columns for _ in range(ROWS)]
    for (_, _, best), x, y in sorted(zip(points, xs, ys, strict=True), key=lambda entry: entry[0][2]):
        grid[_cell(y, ys, ROWS)][_cell(x, xs, columns)] = BEST if best else OTHER
    labels = [ends[1], *[""] * (ROWS - 2), ends[0]]
    lines = [f"{label:>{margin}} │{''.join(row).rstrip()}" for label, row in zip(labels, reversed(grid), strict=True)]
    lines.append(" " * (margin + 1) + "└" + "─" * columns)
    first, last = across(math.exp(min(xs))), across(math.exp(max(xs)))
    lines.append(" " * (margin + 2) + first + last.rjust(columns - len(first)))
    return Figure(title, tuple(lines), f"{axes}; {BEST} Pareto-optimal")


def _cell(value: float, values: Sequence[float], cells: int) -> int:
    span = max(values) - min(values) or 1.0
    return min(int((value - min(values)) / span * cells), cells - 1)
