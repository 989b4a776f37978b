"""Answers that were saved as JSON. They come from outside: whatever is wrong with one is bad input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.report.answers import reporters
from xe_sizer.result.common import SCHEMA_VERSION, Answer, Sized

LARGEST_BYTES = 64 << 20
_BYTE = re.compile(r" \(byte (\d+)\)")
_HINT = "write one with 'xe-sizer estimate --format json -o FILE'"


class _Head(msgspec.Struct):
    schema_version: int


def read_answer(name: str) -> Answer:
    """Decode a saved answer of any kind; `-` is stdin.

    Raises
    ------
    InputError : unreadable, too large, no answer, another version
    """
    place = place_of(name)
    data = _read(name, place)
    try:
        version = msgspec.json.decode(data, type=_Head).schema_version
        if version != SCHEMA_VERSION:
            message = f"schema_version is {version}; this xe-sizer reads {SCHEMA_VERSION}"
            raise InputError(Problem(message, Location(place)))
        keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
        return msgspec.json.decode(data, type=_kind(keys), dec_hook=_within)
    except msgspec.DecodeError as error:
        raise InputError(_problem(error, place, data)) from error
    except RecursionError as error:
        raise InputError(Problem("not a saved result: nested too deeply", Location(place), _HINT)) from error


def place_of(name: str) -> str:
    return "stdin" if name == "-" else name


@contextmanager
def from_outside(names: Sequence[str]) -> Iterator[None]:
    """What fails while saved answers are shown is due to figures that do not belong together. Raises InputError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        if not names:
            raise
        place = ", ".join(map(place_of, names))
        what = f"not an answer of xe-sizer: its figures contradict each other ({type(error).__name__}: {error})"
        raise InputError(Problem(what, Location(place), _HINT)) from error


def _kind(keys: Any) -> type[Answer]:
    """The kind of answer that has most of the keys."""
    return max((each.ANSWER for each in reporters()), key=lambda kind: len(keys & set(kind.__struct_fields__)))


def _within(kind: Any, value: Any) -> Any:
    """An answer about one scenario inside another answer."""
    if kind is not Sized or not isinstance(value, dict):
        raise msgspec.ValidationError("Expected the answer to a scenario")
    return msgspec.convert(value, _kind(value.keys()))


def _read(name: str, place: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise InputError(Problem(f"cannot read: {error.strerror}", Location(place))) from error
    if len(data) > LARGEST_BYTES:
        raise InputError(Problem(f"larger than a saved result may be, {LARGEST_BYTES >> 20} MiB", Location(place)))
    return data


def _problem(error: msgspec.DecodeError, place: str, data: bytes) -> Problem:
    """The decoder counts bytes; people count lines."""
    found = _BYTE.search(str(error))
    message = f"not a saved result: {_BYTE.sub('', str(error))}"
    if found is None:
        return Problem(message, Location(place), _HINT)
    before = data[: int(found.group(1))]
    column = len(before) - (before.rfind(b"\n") + 1) + 1
    return Problem(message, Location(place, before.count(b"\n") + 1, column))
