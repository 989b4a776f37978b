"""Patterns of shells (`*`, `?`, `[a-z]`) and the operators of `${...}` that use them.

`steps` says beforehand how long an operation can take, for callers that limit it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_SPECIAL = frozenset("*?[]\\")


class _One(NamedTuple):
    """What one character has to be; `any_number` for `*`."""

    fits: Callable[[str], bool]
    any_number: bool = False


def escaped(text: str) -> str:
    """Text that stands for itself in a pattern."""
    return "".join([f"\\{character}" if character in _SPECIAL else character for character in text])


def _compiled(pattern: str) -> list[_One]:
    tokens: list[_One] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        closing = pattern.find("]", at + 2)
        if character == "*":
            tokens += [] if tokens and tokens[-1].any_number else [_One(lambda _: True, any_number=True)]
        elif character == "?":
            tokens.append(_One(lambda _: True))
        elif character == "[" and closing > 0:
            tokens.append(_One(_class(pattern[at + 1 : closing])))
            at = closing
        else:
            at += character == "\\" and at + 1 < len(pattern)
            tokens.append(_One(pattern[at].__eq__))
        at += 1
    return tokens


def _class(inside: str) -> Callable[[str], bool]:
    negated, members = inside[:1] in {"!", "^"}, inside.lstrip("!^")
    ranges = re.findall(r"(.)-(.)", members)
    single = re.sub(r".-.", "", members)
    return lambda each: (each in single or any(low <= each <= high for low, high in ranges)) is not negated


def _ends(tokens: list[_One], text: str, start: int) -> list[int]:
    """Where a match that begins at `start` can end, in rising order."""
    states = _closed({0}, tokens)
    ends = [start] if len(tokens) in states else []
    for at in range(start, len(text)):
        following = set()
        for state in states:
            if state < len(tokens) and tokens[state].fits(text[at]):
                following.add(state if tokens[state].any_number else state + 1)
        states = _closed(following, tokens)
        if not states:
            break
        if len(tokens) in states:
            ends.append(at + 1)
    return ends


def _closed(states: set[int], tokens: list[_One]) -> set[int]:
    for state in sorted(states):
        if state < len(tokens) and tokens[state].any_number:
            states.add(state + 1)
    return states


def steps(text: str, pattern: str) -> int:
    """How many steps an operation takes at most; a `*` is tried from every place of the text."""
    return len(text) * len(pattern) * (len(text) if "*" in pattern else 1)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text fits the pattern."""
    return len(text) in _ends(_compiled(pattern), text, 0)


def without_prefix(text: str, pattern: str, *, longest: bool) -> str:
    ends = _ends(_compiled(pattern), text, 0)
    return text[ends[-1 if longest else 0] :] if ends else text


def without_suffix(text: str, pattern: str, *, longest: bool) -> str:
    tokens = _compiled(pattern)
    starts = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return next((text[:start] for start in starts if len(text) in _ends(tokens, text, start)), text)


def replaced(text: str, pattern: str, replacement: str, operator: str) -> str:
    """`/` replaces the first match, `//` all, `/#` one at the start, `/%` one at the end."""
    tokens = _compiled(pattern)
    if operator == "/%":
        kept = without_suffix(text, pattern, longest=True)
        return kept + replacement if kept != text else text
    found, at = "", 0
    while at < len(text):
        ends = [end for end in _ends(tokens, text, at) if end > at]
        found += replacement if ends else text[at]
        at = ends[-1] if ends else at + 1
        if operator == "/#" or (ends and operator == "/"):
            break
    return found + text[at:]
