"""Values of foreign keys as scenarios have them. Text of command lines and typed values of YAML are read alike."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import shorten, show

if TYPE_CHECKING:
    from xe_sizer.errors import Location

# What a foreign file says: plain values, each with its place.


class Written(Immutable):
    """A value as a file has it, and where it stands."""

    value: object
    where: Location


class Unread(Immutable, eq=True):
    """A value that is not known from the file: its text, and why."""

    text: str
    why: str

    def __str__(self) -> str:
        return self.text


class Expression(str):
    """Code whose value the file does not tell, as text: `torch.bfloat16`, `arguments.batch`."""

    __slots__ = ()


Keys = Mapping[str, Written]
"""Dotted keys of a foreign file with their values. Lists stay lists, as long as they hold no groups of keys."""


Converter = Callable[[object], object]
"""From a foreign value to that of a scenario; None where the value says nothing.

Raises ImpossibleError: the tool itself cannot run with the value; UnreadableError: it may, and no scenario says it.
"""
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0", "none", "null", ""})
_NOTHING = frozenset({"", "none", "null"})
_OPEN = (0, -1)
_TEMPLATES = ("$", "{{")  # of variables that something else fills in before the tool reads the file
_SEPARATORS = re.compile(r"[-_\s.]+")


class UnreadableError(ValueError):
    """A foreign value that no scenario can have; the text says why."""


class ImpossibleError(UnreadableError):
    """A foreign value that its key cannot have in the tool itself, as a batch of -5 or of `two` sequences."""


def plain(word: object) -> str:
    """A word in lower case without separators, as names of options are compared."""
    return _SEPARATORS.sub("", str(word)).lower()


def text(value: object) -> str | None:
    """Text, or None where there is none."""
    if value is None or isinstance(value, dict | list):
        return None
    return str(value).strip() or None


def number(value: object) -> float | int | None:
    """A finite number; 500_000 and 1e3 are read from text too."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    if isinstance(value, Expression) or not isinstance(value, str | int | float | list | tuple | dict):
        raise UnreadableError(f"{show(value)} is code whose value the file does not tell")
    if isinstance(value, str) and any(mark in value for mark in _TEMPLATES):
        raise UnreadableError(f"{show(value)} is filled in elsewhere")
    try:
        found = float(str(value).replace("_", "")) if isinstance(value, str) else value
        finite = not isinstance(found, bool) and math.isfinite(found)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        finite = False
    if not finite or not isinstance(found, int | float):
        raise ImpossibleError(f"{show(value)} is not a number")
    return int(found) if isinstance(value, str) and float(found).is_integer() else found


def whole(value: object) -> int | None:
    """A whole number."""
    found = number(value)
    if found is None:
        return None
    if not float(found).is_integer():
        raise ImpossibleError(f"{show(value)} is not a whole number")
    return int(found)


def positive(value: object) -> int | None:
    """A whole number above zero, for what no job is without."""
    found = number(value)
    if found is not None and (found <= 0 or not float(found).is_integer()):
        raise ImpossibleError(f"{show(value)} is not a whole number above zero")
    return None if found is None else int(found)


def positive_or_open(value: object) -> int | None:
    """A whole number above zero; with 0 and -1 the tool does without it, or chooses itself."""
    return None if number(value) in _OPEN else positive(value)


def interval_or_share(value: object) -> float | int | None:
    """Steps between two events, which 0 and -1 switch off; below 1 they are a share of the steps of the run."""
    found = number(value)
    return found if found is not None and 0 < found < 1 else positive_or_open(value)


def interval(value: object) -> int | None:
    """Steps between two events, which 0 and -1 switch off. Raises UnreadableError: a share of the steps of the run."""
    found = interval_or_share(value)
    if isinstance(found, float):
        raise UnreadableError(f"{show(value)} is a share of the steps of the run")
    return found


def above_zero(value: object) -> float | int | None:
    """A number above zero, for what no job is without."""
    found = number(value)
    if found is not None and found <= 0:
        raise ImpossibleError(f"{show(value)} is not above zero")
    return found


def above_zero_or_off(value: object) -> float | int | None:
    """A number above zero; 0 switches off what it weighs or sizes."""
    return None if number(value) == 0 else above_zero(value)


def switch(value: object) -> bool | None:
    """True or false; a switch of a command line that stands alone is true."""
    if value is None:
        return None
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise UnreadableError(f"{show(value)} is neither true nor false")


def is_on(value: object) -> bool:
    """Whether a value turns something on: true, or any text or number that is not a no."""
    if isinstance(value, str):
        return value.strip().lower() not in _NO
    return bool(value)


def listed(value: object) -> tuple[str, ...] | None:
    """Words of a list, or of text between commas or blanks."""
    if value is None:
        return None
    parts = value if isinstance(value, list | tuple) else re.split(r"[,\s]+", str(value).strip(" []()\"'"))
    found = tuple(str(part).strip(" \"'") for part in parts if str(part).strip(" \"'"))
    return found or None


def same_word_of(words: Mapping[str, object]) -> Converter:
    """As `word_of`, also of a list that gives every layer the same word."""
    one = word_of(words)

    def read(value: object) -> object:
        if not isinstance(value, list | tuple):
            return one(value)
        meant = {one(each) for each in value}
        if len(meant) > 1:
            raise UnreadableError(f"{show(value)} differs from layer to layer")
        return next(iter(meant), None)

    return read


def inverse(words: Mapping[Any, Any]) -> dict[Any, Any]:
    """The word that is written for each meaning: the first of a table of words that reads as it."""
    return {meant: word for word, meant in reversed([*words.items()]) if meant is not None}


def word_of(words: Mapping[str, object], otherwise: str = "") -> Converter:
    """What a word stands for, whatever its case and separators; None in the table: the word says nothing.

    otherwise : what the value should have been, for the message about an unknown word
    """
    table = {plain(word): meant for word, meant in words.items()}

    def read(value: object) -> object:
        if value is None:
            return None
        word = plain(value)
        if word in table:
            return table[word]
        known = otherwise or ", ".join(words)
        raise UnreadableError(f"{show(value)} is not known here; known are {shorten(known)}")

    return read
