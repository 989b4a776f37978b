"""Values of the arguments of inference engines as scenarios have them."""

from __future__ import annotations

import re

from xe_sizer.importers.values import ImpossibleError, number, positive_or_open
from xe_sizer.profiles.convert import show

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_UNITS = {"k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2, "g": 1e9, "G": 1024**3}


def human_count(value: object) -> int | None:
    """A number of tokens or requests: `8192`, `4k` (4,000) and `4K` (4,096); `auto` and below 1 say nothing.

    Raises ImpossibleError: it is none.
    """
    word = str(value).strip()
    found = _HUMAN.fullmatch(word)
    if found:
        return int(float(found[1]) * _UNITS[found[2]])
    return None if word.lower() in ("auto", "none", "null") else positive_or_open(value)


def share(value: object) -> float | int | None:
    """A share of the memory of a GPU, above 0 and up to 1. Raises ImpossibleError: it is none."""
    found = number(value)
    if found is not None and not 0 < found <= 1:
        raise ImpossibleError(f"{show(value)} is no share of 1")
    return found
