"""JSON files of other tools: with comments, trailing commas and single quotes, as people write them.

Every value and key keeps its line and column. Nothing is read by recursion, so deep nesting cannot exhaust the stack.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NoReturn

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import shorten
from xe_sizer.profiles.text import foreign_scalar, name_of, read_text
from xe_sizer.profiles.yaml_reader import MAX_DEPTH, MAX_VALUES, ForeignDocument

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.profiles.convert import KeyPath

_TOKEN = re.compile(
    r"""(?P<blank>[\s\ufeff]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[{}\[\]:,])
      | (?P<word>[^\s{}\[\]:,"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, object] = {"None": None, "undefined": None}
_END = {"{": "}", "[": "]"}


def load_json(path: Path) -> ForeignDocument:
    """Read a JSON file; comments and trailing commas are noted.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    return read_json(path, read_text(path))


def read_json(path: Path, text: str) -> ForeignDocument:
    """As `load_json`, of a text that stands in a file of this name, or is part of one.

    Raises
    ------
    InputError    bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    reader = _Reader(text, name_of(path))
    reader.read()
    return ForeignDocument(path, text, reader.root, reader.value_places, reader.key_places, tuple(reader.notes))


class _Reader:
    """One value with its parts, token by token."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.value_places: dict[KeyPath, Location] = {}
        self.key_places: dict[KeyPath, Location] = {}
        self.notes: list[Problem] = []
        self.root: object = None
        self.open: list[tuple[KeyPath, list[object] | dict[str, object], int]] = []
        self.key: str | None = None
        self.expects = "value"  # or "key", "colon", "comma", "end"
        self.values = 0

    def where(self, place: int) -> Location:
        line = bisect_right(self.starts, place)
        return Location(self.name, line, place - self.starts[line - 1] + 1)

    def fail(self, message: str, place: int, hint: str | None = None) -> NoReturn:
        raise InputError(Problem(message, self.where(place), hint))

    def read(self) -> None:
        place = 0
        while place < len(self.text):
            found = _TOKEN.match(self.text, place)
            if not found:
                self.fail("a text that opens here is not closed", place)
            if found.lastgroup != "blank":
                self.token(found[0], found.lastgroup or "", place)
            elif found[0][0] in "/#" and not self.notes:
                self.notes.append(Problem("comments are left out", self.where(place)))
            place = found.end()
        if self.open:
            self.fail(f"'{self.text[self.open[-1][2]]}' is not closed", self.open[-1][2])
        if self.expects == "value":
            self.fail("the file is empty", 0)

    def token(self, token: str, kind: str, place: int) -> None:
        if kind == "sign" and token in "}]":
            self.close(token, place)
        elif self.expects == "key" and kind in {"text", "word"}:
            self.take_key(token, kind, place)
        elif self.expects == "value" and kind != "sign":
            self.put(self.scalar(token, kind, place), place)
        elif self.expects == "value" and token in "{[":
            self.start(token, place)
        elif (self.expects, token) == ("colon", ":"):
            self.expects = "value"
        elif (self.expects, token) == ("comma", ","):
            self.expects = "key" if isinstance(self.open[-1][1], dict) else "value"
        else:
            wanted = {"colon": "':'", "comma": "',' or the end of the group", "end": "the end of the file"}
            self.fail(f"{wanted.get(self.expects, f'a {self.expects}')} is expected here", place)

    def start(self, token: str, place: int) -> None:
        if len(self.open) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", place)
        group: list[object] | dict[str, object] = {} if token == "{" else []
        path = self.put(group, place)
        self.open.append((path, group, place))
        self.expects = "key" if token == "{" else "value"

    def close(self, token: str, place: int) -> None:
        if not self.open or _END[self.text[self.open[-1][2]]] != token:
            self.fail(f"'{token}' closes nothing", place)
        group = self.open[-1][1]
        if self.expects == "colon" or (self.expects == "value" and self.key is not None):
            self.fail("a value is expected here", place)
        if self.expects in {"key", "value"} and group:
            self.notes.append(Problem("a comma before the end of a group is left out", self.where(place)))
        self.open.pop()
        self.expects = "comma" if self.open else "end"

    def take_key(self, token: str, kind: str, place: int) -> None:
        path, group, _ = self.open[-1]
        self.key = self.plain(token, place) if kind == "text" else token
        if isinstance(group, dict) and self.key in group:
            self.notes.append(Problem(f"'{shorten(self.key)}' is given twice; the last counts", self.where(place)))
        self.key_places[(*path, self.key)] = self.where(place)
        self.expects = "colon"

    def put(self, value: object, place: int) -> KeyPath:
        """Put a value where it belongs; returns its path."""
        self.values += 1
        if self.values > MAX_VALUES:
            self.fail(f"more than {MAX_VALUES:,} values", place)
        path: KeyPath = ()
        if not self.open:
            self.root = value
        else:
            around, group, _ = self.open[-1]
            if isinstance(group, list):
                path = (*around, len(group))
                group.append(value)
            else:
                path = (*around, str(self.key))
                group[str(self.key)], self.key = value, None
        self.value_places[path] = self.where(place)
        self.expects = "comma" if self.open else "end"
        return path

    def scalar(self, token: str, kind: str, place: int) -> object:
        if kind == "text":
            return self.plain(token, place)
        return _WORDS[token] if token in _WORDS else foreign_scalar(token)

    def plain(self, token: str, place: int) -> str:
        """What a quoted text says."""
        body = token if token[0] == '"' else '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            return str(json.loads(body, strict=False))
        except ValueError:
            self.fail("unknown escape after a backslash", place)
