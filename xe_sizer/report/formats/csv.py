"""Flat rows under the names of their columns, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.format import clean

if TYPE_CHECKING:
    from xe_sizer.report.document import Options

SHOWS = "rows"
ENDINGS = (".csv",)
FORMULA_STARTS = ("=", "+", "-", "@")  # what a spreadsheet would run


def render(rows: Iterable[Sequence[object]], options: Options) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> str:
    """A value as a spreadsheet reads it; empty for what is not known, text that it will not run."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = clean(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
