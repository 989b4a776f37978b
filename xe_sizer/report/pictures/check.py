"""Which scenarios passed, as a strip of cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import clean, plural
from xe_sizer.report.picture import Cell, Strip
from xe_sizer.report.verdict import caution, verdict_word

if TYPE_CHECKING:
    from xe_sizer.report.picture import Tone
    from xe_sizer.result.check import Checked, CheckResult

LEGEND: tuple[tuple[Tone, str], ...] = (
    ("yes", "passed"),
    ("caution", "passed, tight or unsure"),
    ("no", "failed"),
    ("unknown", "with bad input"),
)


def pictures(result: CheckResult) -> Iterator[Picture]:
    cells = tuple(Cell(f"{clean(one.file)}: {_word(one)}", _tone(one)) for one in result.scenarios)
    if not cells:
        return
    words = dict(LEGEND)
    counts = [f"{sum(cell.tone == tone for cell in cells)} {words[tone]}" for tone in words]
    note = "Numbered in the order of the table."
    yield Picture("Outcome", f"{plural(len(cells), 'scenario')}: {', '.join(counts)}", Strip(cells, LEGEND), note)


def _word(one: Checked) -> str:
    return verdict_word(one.result) if one.result else "BAD INPUT"


def _tone(one: Checked) -> Tone:
    if one.result is None:
        return "unknown"
    if not one.ok:
        return "no"
    return "caution" if caution(one.result) else "yes"
