"""YAML from parser events: plain data in which every value and key keeps its place, and problems in plain words.

Values are built without recursion, so deep nesting cannot exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import yaml

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.convert import shorten, show
from xe_sizer.profiles.scalars import parse_scalar

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import KeyPath

MAX_DEPTH = 50
_MAX_PROBLEMS = 10_000  # a binary or hostile file would otherwise report one problem a line
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster but optional

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


def events(text: str) -> Iterator[yaml.Event]:
    """The parser events of a text.

    Newer releases of the C parser give up at 1,000 levels, before they have said where the first ones are; the slower
    parser says it.

    Raises
    ------
    yaml.YAMLError    bad syntax
    """
    told = 0
    try:
        for event in _parsed(text, _LOADER):
            told += 1
            yield event
    except yaml.YAMLError as error:
        if "maximum nesting depth" not in str(error):
            raise
        yield from islice(_parsed(text, yaml.SafeLoader), told, None)


def _parsed(text: str, parser: Any) -> Iterator[yaml.Event]:
    loader = parser(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def build(builder: Builder, text: str) -> None:
    """Feed a text to a builder, which keeps the problems too."""
    try:
        for event in events(text):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        builder.problems.append(_syntax_problem(error, builder.name))
    except yaml.YAMLError as error:
        builder.problems.append(Problem(f"not valid YAML: {error}", Location(builder.name)))
    except InputError:
        pass  # the builder keeps its problems, of which this one was the last to look for


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
class Frame:
    """An open list or group of keys."""

    path: KeyPath
    container: list[object] | dict[str, object]
    key: str | None = None  # the key whose value comes next; None when a key comes next
    refused: int = 0  # counts refused keys, so that their values get paths of their own


class Builder:
    """Builds plain data from parser events and notes every problem on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.locations: dict[KeyPath, Location] = {}
        self.key_locations: dict[KeyPath, Location] = {}
        self.root: object = None
        self.frames: list[Frame] = []
        self.documents = 0

    def feed(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self.scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.close(event)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.start_document(event)

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
        self.frames.append(Frame(self.place(container, event), container))

    def close(self, event: Any) -> None:
        self.frames.pop()

    def alias(self, event: Any) -> None:
        name = shorten(str(event.anchor))
        self.fail(f"aliases (*{name}) are not supported", event, f"write the value out; {_QUOTE_IT}")
        self.place(None, event)

    def start_document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self.fail("a second document starts here", event, "one file holds one document", stop=True)

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

    def place_key(self, key: object, event: Any, frame: Frame, group: dict[str, object]) -> KeyPath:
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
