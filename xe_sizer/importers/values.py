"""Values of foreign keys as scenarios have them. Text of command lines and typed values of YAML are read alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from xe_sizer.profiles.convert import shorten, show

if TYPE_CHECKING:
    from collections.abc import Mapping

Converter = Callable[[object], object]
"""From a foreign value to that of a scenario. Raises UnreadableError; None where the value says nothing."""

_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0", "none", "null", ""})
_SEPARATORS = re.compile(r"[-_\s.]+")


class UnreadableError(ValueError):
    """A foreign value that its key cannot have; the text says why."""


def plain(word: object) -> str:
    """A word in lower case without separators, as names of options are compared."""
    return _SEPARATORS.sub("", str(word)).lower()


def text(value: object) -> str | None:
    """Text, or None where there is none."""
    if value is None or isinstance(value, dict | list):
        return None
    return str(value).strip() or None


def number(value: object) -> float | int | None:
    """A number; 500_000 and 1e3 are read from text too."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        raise UnreadableError(f"{show(value)} is not a number")
    if isinstance(value, int | float):
        return value
    try:
        found = float(str(value).replace("_", ""))
    except ValueError:
        raise UnreadableError(f"{show(value)} is not a number") from None
    return int(found) if found.is_integer() else found


def whole(value: object) -> int | None:
    """A whole number."""
    found = number(value)
    if found is None:
        return None
    if not float(found).is_integer():
        raise UnreadableError(f"{show(value)} is not a whole number")
    return int(found)


def positive(value: object) -> int | None:
    """A whole number above zero; zero and below say that the tool is to choose."""
    found = whole(value)
    return found if found is not None and found > 0 else None


def above_zero(value: object) -> float | int | None:
    """A number above zero; zero and below say nothing."""
    found = number(value)
    return found if found is not None and found > 0 else None


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
