"""Unquoted scalars of YAML, of flags and of environment variables: read strictly, nothing is guessed.

They follow the YAML 1.2 core schema with the traps closed: what PyYAML reads as text (`1e9`), as octal (`017`), in
base 60 (`1:30`) or as a bool (`no`) is either the number it looks like or an error that says what to write.
"""

from __future__ import annotations

import re
from functools import lru_cache

from xe_sizer.errors import InputError, Problem
from xe_sizer.profiles.convert import shorten, show

_MAX_NUMBER, _EXACT = 1e30, 2.0**53  # the largest number; below the other a float holds every whole number

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_YES_NO = re.compile(r"yes|no|on|off", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?")
_BASES = (
    (re.compile(r"[-+]?0[0-7]{1,40}"), 8),
    (re.compile(r"[-+]?0x[0-9a-fA-F]{1,40}"), 16),
    (re.compile(r"[-+]?0b[01]{1,128}"), 2),
)


@lru_cache(maxsize=4096)  # files have the same keys and words again and again
def parse_scalar(text: str) -> bool | int | float | str | None:
    """The value of an unquoted YAML scalar; also for command-line flags and environment variables.

    Raises
    ------
    InputError    (without a location) for yes/no/on/off, leading zeros, base 60, underscores in numbers,
                  infinities, NaN, and numbers beyond 1e30
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "0123456789+-.":
        if _NUMBER.fullmatch(text):
            return _number(text)
        if _BASE_60.fullmatch(text):
            raise _bad_scalar(f"{show(text)} is read in base 60 by some tools", "write one number")
        if "_" in text and _NUMBER.fullmatch(text.replace("_", "")):
            raise _bad_scalar(f"{show(text)} has underscores", f"write {shorten(text.replace('_', ''))}")
    if _YES_NO.fullmatch(text):
        raise _bad_scalar(f"'{text}' is a bool to some tools and text to others", "write true or false")
    if _NOT_FINITE.fullmatch(text):
        raise _bad_scalar(f"{show(text)} is not a finite number", "leave the key out")
    return text


def _number(text: str) -> int | float:
    if _LEADING_ZERO.match(text):
        plain = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text)
        raise _bad_scalar(f"{show(text)} has a leading zero", f"write {shorten(plain)}")
    value = float(text)
    if abs(value) > _MAX_NUMBER:
        raise _bad_scalar(f"{show(text)} is too large a number", "numbers go up to 1e30")
    exact = "e" in text.lower() and value.is_integer() and abs(value) < _EXACT  # counts are written as 1e5 too
    return int(text) if _WHOLE.fullmatch(text) else int(value) if exact else value


def _bad_scalar(message: str, hint: str) -> InputError:
    return InputError(Problem(message, None, hint))


def foreign_scalar(text: str) -> bool | int | float | str | None:
    """What an unquoted scalar of another tool's file says.

    As PyYAML reads it (`yes` is a bool, `017` is octal), but numbers in any spelling are numbers (`1e-5`, `500_000`),
    infinities and NaN too, and base 60 and dates stay text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _YES_NO.fullmatch(text):
        return text.lower() in {"yes", "on"}
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    digits = text.replace("_", "") if text[0] in "0123456789+-." else ""
    base = next((base for pattern, base in _BASES if pattern.fullmatch(digits)), 10)
    if base != 10:
        return int(digits, base)
    if not _NUMBER.fullmatch(digits) or (_LEADING_ZERO.match(digits) and _WHOLE.fullmatch(digits)):
        return text
    value = float(digits)
    exact = "e" in digits.lower() and abs(value) < _EXACT and value.is_integer()
    return int(digits) if _WHOLE.fullmatch(digits) and abs(value) < _MAX_NUMBER else int(value) if exact else value
