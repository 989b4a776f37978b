"""TOML files of other tools: the standard library reads the values, and their lines are found beside it."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text import name_of, read_text
from xe_sizer.profiles.yaml_reader import ForeignDocument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xe_sizer.profiles.convert import KeyPath

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_NAME})[ \t]*\]\]?")
_KEY = re.compile(rf"[ \t]*({_NAME})[ \t]*=[ \t]*")
_PARTS = re.compile(_PART)
_INLINE = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\#[^\n]*|[\[\]{}]|\n", re.DOTALL)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_toml(path: Path) -> ForeignDocument:
    """Read a TOML file; values inside `[ ]` and `{ }` have the place of their key.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, nested too deep
    """
    return read_toml(path, read_text(path))


def read_toml(path: Path, text: str) -> ForeignDocument:
    """As `load_toml`, of a text that stands in a file of this name.

    Raises
    ------
    InputError    bad syntax, nested too deep
    """
    text = text.replace("\r\n", "\n")
    value = _values(text, name_of(path))
    values: dict[KeyPath, Location] = {(): Location(name_of(path), 1, 1)}
    keys: dict[KeyPath, Location] = {}
    for path_of_key, key, value_place in _places(text, name_of(path)):
        keys[path_of_key], values[path_of_key] = key, value_place
    return ForeignDocument(path, text, value, values, keys)


def _values(text: str, name: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        place = Location(name, *map(int, found.groups())) if found and found[1] else Location(name)
        raise InputError(Problem(f"not valid TOML: {_PLACE.sub('', str(error))}", place)) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(Problem(f"not valid TOML: {reason}", Location(name))) from None


def _places(text: str, name: str) -> Iterator[tuple[KeyPath, Location, Location]]:
    """Path, place of the key and place of the value, of every table and key at the start of a line."""
    table: KeyPath = ()
    numbers: dict[KeyPath, int] = {}
    start, line = 0, 1
    while start < len(text):
        if found := _TABLE.match(text, start):
            table = _resolved(_parts(found[2]), numbers, opens=found[1] == "[[")
            place = Location(name, line, found.start(1) - start + 1)
            yield table, place, place
            end = found.end()
        elif found := _KEY.match(text, start):
            key = Location(name, line, found.start(1) - start + 1)
            yield (*table, *_parts(found[1])), key, Location(name, line, found.end() - start + 1)
            end = found.end()
        else:
            end = start
        end = _end_of_line(text, end)
        line += text.count("\n", start, end)
        start = end


def _resolved(parts: KeyPath, numbers: dict[KeyPath, int], *, opens: bool) -> KeyPath:
    """The path of a table, with the number of the last item of every list of tables in it."""
    path: KeyPath = ()
    for place, part in enumerate(parts):
        path = (*path, part)
        if opens and place == len(parts) - 1:
            numbers[path] = numbers.get(path, -1) + 1
        if path in numbers:
            path = (*path, numbers[path])
    return path


def _parts(name: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PARTS.findall(name))


def _end_of_line(text: str, start: int) -> int:
    """Where the line after a value starts; a value in brackets or triple quotes goes over several lines."""
    depth = 0
    for found in _INLINE.finditer(text, start):
        sign = found[0]
        depth += (sign in {"[", "{"}) - (sign in {"]", "}"})
        if sign == "\n" and depth <= 0:
            return found.end()
    return len(text)
