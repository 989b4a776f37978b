"""`{1..4}` and `{a,b}` of unquoted words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.shell.syntax import Literal

if TYPE_CHECKING:
    from xe_sizer.importers.readers.shell.syntax import Parts

_RANGE = re.compile(r"(.*?)\{(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?\}(.*)", re.DOTALL)
_LIST = re.compile(r"([^{}]*)\{([^{}]*,[^{}]*)\}([^{}]*)")
MAX_ITEMS = 1_000


def brace_expanded(parts: Parts) -> tuple[Parts, ...]:
    """The words that braces make of one word; the word itself without braces, or with more than `MAX_ITEMS`."""
    if len(parts) != 1 or not isinstance(parts[0], Literal) or parts[0].quoted or "{" not in parts[0].text:
        return (parts,)
    literal = parts[0]
    return tuple((replace(literal, text=text, moves=False),) for text in _texts(literal.text)) or (parts,)


def _texts(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match:
        before, first, last, step, after = match.groups()
        low, high = int(first), int(last)
        width = abs(int(step or 1)) or 1
        numbers = range(low, high + 1, width) if low <= high else range(low, high - 1, -width)
        return [f"{before}{number}{after}" for number in numbers] if len(numbers) <= MAX_ITEMS else []
    match = _LIST.fullmatch(text)
    return [f"{match[1]}{item}{match[3]}" for item in match[2].split(",")] if match else []
