"""What variables hold: text whose characters know where they stand, and what was not known of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from xe_sizer.errors import InputError, Problem
from xe_sizer.importers.readers.shell.places import Text

MAX_WORDS, MAX_CHARACTERS = 100_000, 4 * 2**20
"""The most words and characters that all expansions of a script may make."""

_STEPS = 8
_FIELD = re.compile(r"[^ \t\r\n]+")


class Run(NamedTuple):
    """Characters from one place.

    `unknown` names what is missing where the text only stands for a value;
    `computed` where a program would have given it, so that it is known not to be empty.
    """

    text: str
    at: int
    moves: bool = True
    quoted: bool = False
    unknown: tuple[str, ...] = ()
    computed: bool = False

    def part(self, start: int, end: int) -> Run:
        return self._replace(text=self.text[start:end], at=self.at + start if self.moves else self.at)


Runs: TypeAlias = tuple[Run, ...]


class Array(NamedTuple):
    """Items by their keys; `named` where keys are words (`declare -A`)."""

    items: Mapping[str, Runs]
    named: bool = False


Value: TypeAlias = "Runs | Array"
Break = None
"""Stands between the items of an array that was expanded."""


def text_of(runs: Iterable[Run]) -> str:
    return "".join([run.text for run in runs])


def unknown_in(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of what is not known, each once."""
    return tuple(dict.fromkeys(name for run in runs for name in run.unknown))


def computed_in(runs: Iterable[Run]) -> bool:
    return any(run.computed for run in runs)


def plain_text(runs: Iterable[Run]) -> str:
    """The text where variables that are not set are empty, as a shell takes them."""
    return "".join([run.text for run in runs if run.computed or not run.unknown])


def moving_text(runs: Iterable[Run]) -> Text:
    """Runs as one text that can be read again, every character at its own place."""
    offsets: list[int] = []
    for run in runs:
        offsets += range(run.at, run.at + len(run.text)) if run.moves else [run.at] * len(run.text)
    offsets.append(offsets[-1] if offsets else 0)
    return Text(text_of(runs), offsets)


def split_words(pieces: Iterable[Run | None]) -> list[Runs]:
    """Words: unquoted text splits at blanks, quoted text and text that is not known never does."""
    words: list[Runs] = []
    current: list[Run] = []
    for piece in [*pieces, Break]:
        if piece is Break:
            words += [tuple(current)] if current else []
            current = []
        elif piece.quoted or piece.unknown:
            current.append(piece)
        else:
            for field, ends in _fields(piece):
                if field:
                    current.append(field)
                if ends and current:
                    words.append(tuple(current))
                    current = []
    return words


def _fields(run: Run) -> Iterator[tuple[Run | None, bool]]:
    """Fields of an unquoted run, and whether a blank ends them; a blank in front ends what stood before."""
    text = run.text
    if text[:1].isspace():
        yield None, True
    for match in _FIELD.finditer(text):
        yield run.part(match.start(), match.end()), match.end() < len(text)


class Budget:
    """Counts what a script makes of its text, so that no script makes much of little."""

    def __init__(self) -> None:
        self.words = self.characters = 0

    def work(self, steps: int) -> None:
        """Counts steps of a comparison, a character for `_STEPS` of them."""
        self.spend(0, steps // _STEPS)

    def spend(self, words: int, characters: int) -> None:
        """Raises InputError when a script makes more than `MAX_WORDS` words or `MAX_CHARACTERS`."""
        self.words += words
        self.characters += characters
        if self.words > MAX_WORDS or self.characters > MAX_CHARACTERS:
            limits = f"{MAX_WORDS:,} words or {MAX_CHARACTERS // 2**20} MiB"
            raise InputError(Problem(f"the script expands to more than {limits}", hint="give the command it runs"))
