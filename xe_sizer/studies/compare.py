"""Results side by side, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import (
    Alternative,
    Comparison,
    Difference,
)

if TYPE_CHECKING:
    from xe_sizer.result.training import Result

DIFFERENCES = 6


def compare(alternatives: Sequence[tuple[str, Result]]) -> Comparison:
    """Results side by side, and the parts of a step in which they differ most from the first."""
    entries = tuple(Alternative(name=name, result=result) for name, result in alternatives)
    return Comparison(schema_version=SCHEMA_VERSION, alternatives=entries, differences=tuple(_differences(entries)))


def _differences(entries: Sequence[Alternative]) -> Iterator[Difference]:
    """Parts of the whole job's time, those with the widest spread first."""
    totals = [
        {part.name: part.seconds * entry.result.time.steps for part in entry.result.time.components}
        for entry in entries
    ]
    names = list(dict.fromkeys(name for parts in totals for name in parts))
    spread = {name: [parts.get(name, 0.0) for parts in totals] for name in names}
    widest = sorted(names, key=lambda name: min(spread[name]) - max(spread[name]))
    for name in widest[:DIFFERENCES]:
        yield Difference(name=name, total_s=tuple(spread[name]))
