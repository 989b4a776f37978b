"""How long the chosen plan of each question takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import clean, duration, duration_range
from xe_sizer.report.picture import Bar, Bars
from xe_sizer.report.pictures.estimate import range_note
from xe_sizer.report.pictures.parts import time_axis

if TYPE_CHECKING:
    from xe_sizer.result.studies import SweepResult, SweepRow

MOST_BARS = 24  # the table has all


def pictures(result: SweepResult) -> Iterator[Picture]:
    spans = [row.candidate.total_s.high for row in result.rows if row.candidate]
    if not spans:
        return
    files = len({row.scenario for row in result.rows}) > 1
    bars = tuple(_bar(row, files) for row in result.rows[:MOST_BARS])
    more = f" The first {MOST_BARS} of {len(result.rows)}." if len(result.rows) > MOST_BARS else ""
    title = "Time of the chosen plans"
    says = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
    yield Picture(title, says, Bars(time_axis("Time", max(spans)), bars), range_note() + more)


def _bar(row: SweepRow, files: bool) -> Bar:
    values = ", ".join(f"{clean(key)} {clean(value)}" for key, value in row.values.items())
    name = ", ".join(part for part in (clean(row.scenario) if files else "", values) if part) or "plan"
    if row.candidate is None:
        return Bar(name, None, "no plan")
    span = row.candidate.total_s
    return Bar(name, span.expected, f"{duration(span.expected)}, {duration_range(span)}", span.low, span.high)
