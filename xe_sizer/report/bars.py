"""Bars of text, and how much room figures have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.report.document import Table

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
