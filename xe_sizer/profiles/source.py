"""YAML files read strictly: every value keeps its file, line and column, and nothing is guessed.

Scalars follow the YAML 1.2 core schema with the traps closed: what PyYAML reads as text (`1e9`), as octal
(`017`), in base 60 (`1:30`) or as a bool (`no`) is either the number it looks like or an error that says what
to write. Values are built from parser events without recursion, so deep nesting cannot exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.convert import KeyPath, Locate, convert, shorten, show
from xe_sizer.profiles.text_file import name_of, read_text

__all__ = [
    "MAX_DEPTH",
    "PATH_HINT",
    "Document",
    "KeyPath",
    "Locate",
    "convert",
    "load_yaml",
    "name_problems",
    "parse_scalar",
]

MAX_DEPTH = 50
PATH_HINT = "a path in a file starts at that file's folder, else at the working folder"
_MAX_NUMBER, _EXACT = 1e30, 2.0**53  # the largest number; below the other a float holds every whole number
_MAX_PROBLEMS = 50  # a binary or hostile file would otherwise report one problem a line
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster but optional

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

_QUOTE_IT = "quote it if it is text"
_ALIGN = "align the keys of a group, and the items of a list, in one column"
_INDENT = "the indentation does not match the lines above"
_SYNTAX = (  # words of the parser's message, what is wrong, what to do
    ("mapping values are not", "a ':' is not expected here", "check the indentation; quote text with ': '"),
    (
        "start any token",
        "a value cannot start with this character",
        "indent with spaces; quote text with @ ` %",
    ),
    ("',' or ']'", "a list in [ ] is not closed or lacks a comma", None),
    ("',' or '}'", "a group in { } is not closed or lacks a comma", None),
    ("end of stream", "a quoted text is not closed", None),
    ("document indicator", "a quoted text is not closed", None),
    ("document separator", "a quoted text is not closed", None),
    ("expected ':'", "this line has no ':' after its key", "write 'key: value'"),
    ("expected key", _INDENT, _ALIGN),
    ("block end", _INDENT, _ALIGN),
    ("'-' indicator", _INDENT, _ALIGN),
    ("escape character", "unknown escape after a backslash", "use single quotes for text with backslashes"),
    ("document start", "text stands after the end of the document", "check the indentation"),
    ("tag", "tags (words that start with '!') are not supported", "quote text that starts with '!'"),
)


@frozen
class Document:
    """A YAML file: its text, and its plain data (dict, list, str, int, float, bool, None).

    Where each piece stands is found only when it is asked for, which is where something is wrong with it.
    """

    path: Path
    text: str
    value: object

    @cached_property
    def _places(self) -> _Builder:
        return _built(self.path, self.text)

    def locate(self, key_path: KeyPath, *, key: bool = False) -> Location:
        """Where the value (or key) of a path stands; for an unknown path, its nearest known ancestor."""
        places = self._places
        for length in range(len(key_path), -1, -1):
            path = key_path[:length]
            found = (places.key_locations.get(path) if key else None) or places.locations.get(path)
            if found:
                return found
        return Location(name_of(self.path))


def load_yaml(path: Path, root: type = dict) -> Document:
    """Read one YAML document whose root is a group of keys, or a list where `root` is list.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, duplicate or non-text keys, ambiguous
                  scalars, aliases, anchors, tags, merge keys, several documents, deeper than MAX_DEPTH
    """
    text = read_text(path)
    try:
        value = _plain_data(text)
    except (_IrregularError, InputError, yaml.YAMLError):
        value = None
    if not isinstance(value, root):
        builder = _built(path, text)
        if not builder.problems:
            builder.check_root(root)
        if builder.problems:
            raise InputError(builder.problems)
        value = builder.root
    return Document(path, text, value)


def _built(path: Path, text: str) -> _Builder:
    """Data, places and problems of a document, event by event."""
    builder = _Builder(name_of(path))
    try:
        for event in _events(text):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        builder.problems.append(_syntax_problem(error, builder.name))
    except yaml.YAMLError as error:
        builder.problems.append(Problem(f"not valid YAML: {error}", Location(builder.name)))
    except InputError:
        pass  # the builder keeps its problems, of which this one was the last to look for
    return builder


_Group = list[object] | dict[str, object]


class _IrregularError(Exception):
    """Something in a document that may be wrong; `_Builder` says what and where."""


_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_BEFORE_AND_AFTER = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent, yaml.StreamEndEvent)


def _plain_data(text: str) -> object:
    """The data of a document in which nothing is wrong.

    Raises
    ------
    _IrregularError, InputError, yaml.YAMLError    for all else
    """
    documents: list[object] = []
    around: list[tuple[_Group, str | None]] = []  # the groups around the open one, each with the key of the next
    group: _Group = documents
    key: str | None = None
    for event in _events(text):
        kind = type(event)
        if kind in _BEFORE_AND_AFTER:
            continue
        if kind in _ENDS:
            group, key = around.pop()
            continue
        value = _plain_value(event, len(around))
        if isinstance(group, list):
            group.append(value)
        elif key is not None:
            group[key], key = value, None
        elif isinstance(value, str) and value not in group and value != "<<":
            key = value
            continue
        else:
            raise _IrregularError
        if kind is not yaml.ScalarEvent:
            around.append((group, key))
            group, key = cast(_Group, value), None
    if len(documents) != 1:
        raise _IrregularError
    return documents[0]


def _plain_value(event: Any, depth: int) -> object:
    """The scalar of an event, or the empty group that it opens."""
    kind = type(event)
    if kind is yaml.AliasEvent or event.anchor is not None or event.tag is not None:
        raise _IrregularError
    if kind is yaml.ScalarEvent:
        return event.value if event.style else parse_scalar(event.value)
    if depth >= MAX_DEPTH:
        raise _IrregularError
    return {} if kind is yaml.MappingStartEvent else []


def name_problems(name: str, document: Document) -> list[Problem]:
    """A profile is found by its file's name, so the name inside must be the same."""
    if name == document.path.stem:
        return []
    message = f"name is '{name}' but the file is '{document.path.name}'"
    return [Problem(message, document.locate(("name",)), "give both the same name")]


def check_name(name: str, document: Document) -> None:
    """Raises InputError if a profile's name is not that of its file."""
    problems = name_problems(name, document)
    if problems:
        raise InputError(problems)


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


def _events(text: str) -> Iterator[yaml.Event]:
    loader = _LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.MarkedYAMLError, name: str) -> Problem:
    reason = error.problem or str(error)
    start = error.context_mark
    mark = error.problem_mark or start
    for jargon, message, hint in _SYNTAX:
        if jargon in reason:
            if jargon == "expected ':'":
                mark = start or mark  # the parser complains on a later line; the key stands where it started
            opened = f"it opens at line {start.line + 1}, column {start.column + 1}" if start else None
            return Problem(message, _mark_place(mark, name), hint or opened)
    return Problem(f"not valid YAML: {reason}", _mark_place(mark, name))


def _mark_place(mark: Any, name: str) -> Location:
    return Location(name, mark.line + 1, mark.column + 1) if mark else Location(name)


@dataclass
class _Frame:
    """An open list or group of keys."""

    path: KeyPath
    container: list[object] | dict[str, object]
    key: str | None = None  # the key whose value comes next; None when a key comes next
    refused: int = 0  # counts refused keys, so that their values get paths of their own


class _Builder:
    """Builds plain data from parser events and notes every problem on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.locations: dict[KeyPath, Location] = {}
        self.key_locations: dict[KeyPath, Location] = {}
        self.root: object = None
        self.frames: list[_Frame] = []
        self.documents = 0

    def feed(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self.scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.frames.pop()
        elif isinstance(event, yaml.AliasEvent):
            self.fail(
                f"aliases (*{shorten(str(event.anchor))}) are not supported",
                event,
                f"write the value out; {_QUOTE_IT}",
            )
            self.place(None, event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.fail("a second document starts here", event, "one file holds one document", stop=True)

    def fail(self, message: str, event: Any, hint: str | None = None, *, stop: bool = False) -> None:
        self.problems.append(Problem(message, self.where(event), hint))
        if stop or len(self.problems) >= _MAX_PROBLEMS:
            raise InputError(self.problems)

    def where(self, event: Any) -> Location:
        return _mark_place(event.start_mark, self.name)

    def open(self, event: Any) -> None:
        if len(self.frames) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", event, stop=True)
        self.check_node(event)
        container: list[object] | dict[str, object] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self.frames.append(_Frame(self.place(container, event), container))

    def scalar(self, event: Any) -> None:
        self.check_node(event)
        value: object = event.value
        if not event.style and event.tag is None:
            try:
                value = parse_scalar(event.value)
            except InputError as error:
                self.fail(error.problems[0].message, event, f"{error.problems[0].hint}; {_QUOTE_IT}")
        self.place(value, event)

    def check_node(self, event: Any) -> None:
        if event.tag is not None:
            self.fail(f"tags ({shorten(event.tag)}) are not supported", event, f"leave it out; {_QUOTE_IT}")
        if event.anchor is not None:
            self.fail(f"anchors (&{shorten(event.anchor)}) are not supported", event, _QUOTE_IT)

    def place(self, value: object, event: Any) -> KeyPath:
        """Put a value where it belongs; returns its path."""
        if not self.frames:
            self.root = value
            self.locations[()] = self.where(event)
            return ()
        frame = self.frames[-1]
        if isinstance(frame.container, dict):
            if frame.key is None:
                return self.place_key(value, event, frame, frame.container)
            path, frame.key = (*frame.path, frame.key), None
            frame.container[str(path[-1])] = value
        else:
            path = (*frame.path, len(frame.container))
            frame.container.append(value)
        self.locations[path] = self.where(event)
        return path

    def place_key(self, key: object, event: Any, frame: _Frame, group: dict[str, object]) -> KeyPath:
        if not isinstance(key, str):
            self.fail(f"a key must be text, not {show(key)}", event, "quote the key")
        elif key == "<<" and not event.style:
            self.fail("merge keys (<<) are not supported", event, "write the keys out")
        elif key in group:
            first = self.key_locations[(*frame.path, key)]
            place = f"line {first.line}, column {first.column}"
            self.fail(f"'{show(key)[1:-1]}' is given twice; first at {place}", event, "remove one of them")
        else:
            frame.key = key
            self.key_locations[(*frame.path, key)] = self.where(event)
            return (*frame.path, key)
        frame.refused += 1
        frame.key = f"<refused {frame.refused}>"
        return (*frame.path, frame.key)

    def check_root(self, root: type) -> None:
        if isinstance(self.root, root):
            return
        where = self.locations.get((), Location(self.name, 1, 1))
        wanted, hint = (
            ("a list", "write '- key: value' entries")
            if root is list
            else ("keys and values", "write 'key: value' lines")
        )
        what = "is empty" if self.root is None else f"must hold {wanted}, not {show(self.root)}"
        self.problems.append(Problem(f"the file {what}", where, hint))
