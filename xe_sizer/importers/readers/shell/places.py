"""Where each character of a script stands, also after it went through variables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from xe_sizer.errors import InputError, Location, Problem

MAX_CHARACTERS = 2**20
"""Longest script that is read."""


class Text(NamedTuple):
    """Characters with the offset of each one, and of the end, among all texts of a reading."""

    characters: str
    offsets: Sequence[int]

    def part(self, start: int, end: int) -> Text:
        return Text(self.characters[start:end], self.offsets[start : end + 1])


class _Origin(NamedTuple):
    begins: int
    location: Location
    line_starts: tuple[int, ...]


class Places:
    """All texts of a reading, one after the other, so that one number says file, line and column."""

    def __init__(self) -> None:
        self._origins: list[_Origin] = []
        self._end = 0

    def add(self, text: str, location: Location) -> Text:
        """The text with its places; its first character stands at `location`.

        Raises InputError where the text is longer than `MAX_CHARACTERS`.
        """
        if len(text) > MAX_CHARACTERS:
            raise InputError(Problem(f"a script has at most {MAX_CHARACTERS:,} characters", location))
        begins, self._end = self._end, self._end + len(text) + 1
        starts = (0, *(at + 1 for at, character in enumerate(text) if character == "\n"))
        self._origins.append(_Origin(begins, location, starts))
        return Text(text, range(begins, self._end))

    def locate(self, offset: int) -> Location:
        """File, line and column of an offset; a text without lines of its own has one place."""
        begins, location, starts = self._origins[bisect_right(self._origins, offset, key=lambda each: each.begins) - 1]
        if location.line is None:
            return location
        row = bisect_right(starts, offset - begins) - 1
        column = offset - begins - starts[row]
        return Location(location.name, location.line + row, column + ((location.column or 1) if row == 0 else 1))
