"""Rows of a file, whatever its format: each with its place, and what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from xe_sizer.errors import Location, Problem

MAX_ROW_BYTES = 64 << 20  # chosen: 16 M tokens; what is longer is no sample
SHOWN_PROBLEMS = 5
Read = Callable[[int], None]
"""Is told how many bytes of the file have been read."""


class Row(NamedTuple):
    """One row as decoded. `place` finds it again, `number` is its line or its place in the list, from 1."""

    place: int
    number: int
    value: Any


@dataclass
class Broken:
    """Rows that could not be read: how many, and the first of them with the reason."""

    path: Path
    count: int = 0
    problems: list[Problem] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, reason: str) -> None:
        """One more row. `number` counts from 1."""
        self.count += 1
        self.reasons[reason if len(self.reasons) < SHOWN_PROBLEMS else "other"] += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(Problem(reason, Location(str(self.path), number)))


class Source(Protocol):
    """A file of rows.

    rows : all that can be read, in order; the others go to `broken`
    again : the rows at some places, ascending
    unit : what a row is called, line or row
    """

    path: Path
    size_bytes: int
    broken: Broken
    unit: str

    def rows(self, read: Read) -> Iterator[Row]: ...
    def again(self, places: Sequence[int]) -> Iterator[Row]: ...
