"""YAML with places: each value with its file, line and column, strict for scenarios and lenient for other tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import yaml

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import KeyPath, shorten, show
from xe_sizer.profiles.text import MAX_FILE_BYTES, foreign_scalar, name_of, parse_scalar, read_text

# YAML from parser events: plain data in which every value and key keeps its place, and problems in plain words.
#
# Values are built without recursion, so deep nesting cannot exhaust the stack.

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


# YAML files read strictly: every value keeps its file, line and column, and nothing is guessed.
#
# Anything irregular is an error that says what to write; files of other tools are read by `foreign_yaml`.

__all__ = [
    "MAX_DEPTH",
    "PATH_HINT",
    "Document",
    "KeyPath",
    "load_yaml",
    "name_problems",
    "parse_scalar",
]
PATH_HINT = "a path in a file starts at that file's folder, else at the working folder"


class Document(Immutable):
    """A YAML file: its text, and its plain data (dict, list, str, int, float, bool, None).

    Where each piece stands is found only when it is asked for, which is where something is wrong with it.
    """

    path: Path
    text: str
    value: object

    @cached_property
    def places(self) -> tuple[Mapping[KeyPath, Location], Mapping[KeyPath, Location]]:
        """Where values stand, and where keys stand."""
        builder = build_document(self.path, self.text)
        return builder.locations, builder.key_locations

    @property
    def origins(self) -> Mapping[str, str]:
        """Where values come from that the file does not state itself, by dotted key."""
        return {}

    def locate(self, key_path: KeyPath, *, key: bool = False) -> Location:
        """Where the value (or key) of a path stands; for an unknown path, its nearest known ancestor."""
        values, keys = self.places
        for length in range(len(key_path), -1, -1):
            path = key_path[:length]
            found = (keys.get(path) if key else None) or values.get(path)
            if found:
                return found
        return Location(name_of(self.path))


def load_yaml(path: Path, root: type = dict, most_bytes: int = MAX_FILE_BYTES) -> Document:
    """Read one YAML document whose root is a group of keys, or a list where `root` is list.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, duplicate or non-text keys, ambiguous
                  scalars, aliases, anchors, tags, merge keys, several documents, deeper than MAX_DEPTH
    """
    text = read_text(path, most_bytes)
    try:
        value = read_plain_data(text)
    except (IrregularError, InputError, yaml.YAMLError):
        value = None
    if not isinstance(value, root):
        builder = build_document(path, text)
        if not builder.problems:
            builder.check_root(root)
        if builder.problems:
            raise InputError(builder.problems)
        value = builder.root
    return Document(path, text, value)


def build_document(path: Path, text: str) -> Builder:
    """Data, places and problems of a document, event by event."""
    builder = Builder(name_of(path))
    build(builder, text)
    return builder


_Group = list[object] | dict[str, object]


class IrregularError(Exception):
    """Something in a document that may be wrong; `Builder` says what and where."""


_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_BEFORE_AND_AFTER = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent, yaml.StreamEndEvent)


def read_plain_data(text: str) -> object:
    """The data of a document in which nothing is wrong.

    Raises
    ------
    IrregularError, InputError, yaml.YAMLError    for all else
    """
    documents: list[object] = []
    around: list[tuple[_Group, str | None]] = []  # the groups around the open one, each with the key of the next
    group: _Group = documents
    key: str | None = None
    for event in events(text):
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
            raise IrregularError
        if kind is not yaml.ScalarEvent:
            around.append((group, key))
            group, key = cast(_Group, value), None
    if len(documents) != 1:
        raise IrregularError
    return documents[0]


def _plain_value(event: Any, depth: int) -> object:
    """The scalar of an event, or the empty group that it opens."""
    kind = type(event)
    if kind is yaml.AliasEvent or event.anchor is not None or event.tag is not None:
        raise IrregularError
    if kind is yaml.ScalarEvent:
        return event.value if event.style else parse_scalar(event.value)
    if depth >= MAX_DEPTH:
        raise IrregularError
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


# YAML files of other tools: everything that can be read is read, and what was done to read it is noted.
#
# Anchors, aliases and merge keys are expanded up to a bound; a file may hold several documents; a tag is left out and
# its value kept as plain data, never constructed; of keys given twice the last counts. Templates of Helm and Jinja stay
# as text where they are values, and lines that hold nothing else are left out. Line and column stay those of the file.

MAX_VALUES = 200_000  # of a file with its aliases expanded; the largest configurations have some thousands
_MAX_NOTES = 50
_MERGE = "<<"
_YAML_TAG = "tag:yaml.org,2002:"  # what `!!` stands for
_TEXT_TAGS = {f"{_YAML_TAG}str", "!"}
_CORE_TAGS = {f"{_YAML_TAG}{name}" for name in ("int", "float", "bool", "null", "map", "seq")} | _TEXT_TAGS
_PYTHON_NAME = f"{_YAML_TAG}python/name:"
_TEMPLATE = re.compile(r"\{\{(?!\{).*?\}\}|\{%.*?%\}|\{#.*?#\}")
_TEMPLATE_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_TEMPLATE_LINE = re.compile(rf"[ \t]*(?:(?:{_TEMPLATE.pattern})[ \t]*)+(?:#.*)?")
_MASK = {ord(sign): 0xE000 + ord(sign) for sign in "{}[],:#&*!|>'\"%@`\\-?="}
_UNMASK = {masked: sign for sign, masked in _MASK.items()}


class ForeignDocument(Document):
    """One document of another tool's file, with the place of each value and key and notes on how it was read."""

    value_places: Mapping[KeyPath, Location]
    key_places: Mapping[KeyPath, Location]
    notes: tuple[Problem, ...] = ()

    @property
    def places(self) -> tuple[Mapping[KeyPath, Location], Mapping[KeyPath, Location]]:
        """Where values stand, and where keys stand."""
        return self.value_places, self.key_places


def load_foreign_yaml(path: Path) -> tuple[ForeignDocument, ...]:
    """The documents of another tool's YAML file that hold something.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    return documents_of(path, read_text(path))


def documents_of(path: Path, text: str) -> tuple[ForeignDocument, ...]:
    """As `load_foreign_yaml`, of a text that stands in a file of this name, or is part of one.

    Raises
    ------
    InputError    bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    reader = _read(text.removeprefix("\ufeff"), name_of(path))
    if reader.problems:
        raise InputError(reader.problems)
    return tuple(
        ForeignDocument(path, text, value, values, keys, tuple(reader.notes))
        for value, values, keys in reader.read
        if value is not None
    )


def _read(text: str, name: str) -> _ForeignBuilder:
    """The first reading that succeeds: of the text as it is, with templates masked, with tabs replaced."""
    reader = _ForeignBuilder(name)
    build(reader, text)
    for repair in (_without_templates, _without_tabs):
        if not reader.problems and not reader.odd_keys:
            break
        repaired, notes = repair(text, name)
        if repaired != text:
            text = repaired
            reader = _ForeignBuilder(name, notes)
            build(reader, text)
    return reader


def _without_templates(text: str, name: str) -> tuple[str, list[Problem]]:
    """The text with templates written in signs that mean nothing to YAML; lines of templates alone become empty."""
    notes = []
    text = _TEMPLATE_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _TEMPLATE_LINE.fullmatch(line):
            what = f"left out, since it is a template: {shorten(line.strip())}"
            notes.append(Problem(what, Location(name, number + 1, 1)))
            lines[number] = ""
        elif "{" in line:
            lines[number] = _TEMPLATE.sub(lambda found: found[0].translate(_MASK), line)
    return "\n".join(lines), notes[:_MAX_NOTES]


def _without_tabs(text: str, name: str) -> tuple[str, list[Problem]]:
    """The text with each tab of an indentation read as two spaces, and others as one."""
    if "\t" not in text:
        return text, []
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines, 1) if "\t" in line)
    for number, line in enumerate(lines):
        body = line.lstrip(" \t")
        lines[number] = line[: len(line) - len(body)].replace("\t", "  ") + body.replace("\t", " ")
    return "\n".join(lines), [Problem("tabs are read as spaces", Location(name, first))]


class _ForeignBuilder(Builder):
    """Reads on where the strict builder reports a problem, and notes what it did."""

    def __init__(self, name: str, notes: list[Problem] | None = None) -> None:
        super().__init__(name)
        self.notes = notes or []
        self.read: list[tuple[object, dict[KeyPath, Location], dict[KeyPath, Location]]] = []
        self.anchors: dict[str, tuple[KeyPath, object]] = {}
        self.values = 0
        self.odd_keys = False

    def feed(self, event: yaml.Event) -> None:
        super().feed(event)
        if isinstance(event, yaml.DocumentEndEvent):
            self.read.append((self.root, self.locations, self.key_locations))

    def start_document(self, event: Any) -> None:
        self.root, self.locations, self.key_locations, self.anchors = None, {}, {}, {}

    def fail(self, message: str, event: Any, hint: str | None = None, *, stop: bool = False) -> None:
        if stop:
            super().fail(message, event, hint, stop=True)
        self.note(message, event)

    def note(self, message: str, event: Any) -> None:
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(Problem(message, self.where(event)))

    def count(self, event: Any) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            self.fail(f"more than {MAX_VALUES:,} values, aliases expanded", event, stop=True)

    def open(self, event: Any) -> None:
        self.count(event)
        frame = self.frames[-1] if self.frames else None
        self.odd_keys |= frame is not None and isinstance(frame.container, dict) and frame.key is None
        super().open(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (self.frames[-1].path, self.frames[-1].container)

    def scalar(self, event: Any) -> None:
        self.count(event)
        self.check_node(event)
        frame = self.frames[-1] if self.frames else None
        if frame and isinstance(frame.container, dict) and frame.key is None:
            value: object = event.value.translate(_UNMASK)
        else:
            value = self.scalar_value(event)
        path = self.place(value, event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (path, value)

    def scalar_value(self, event: Any) -> object:
        text = event.value.translate(_UNMASK)
        if event.tag is not None and event.tag not in _CORE_TAGS:
            return text or event.tag.removeprefix(_PYTHON_NAME)
        if event.tag in _TEXT_TAGS or (event.style and not event.tag) or text != event.value:
            return text
        return foreign_scalar(text)

    def check_node(self, event: Any) -> None:
        if event.tag is not None and event.tag not in _CORE_TAGS:
            self.note(f"the tag {shorten(event.tag.replace(_YAML_TAG, '!!'))} is left out", event)

    def place_key(self, key: object, event: Any, frame: Frame, group: dict[str, object]) -> KeyPath:
        if not isinstance(key, str):
            return super().place_key(key, event, frame, group)
        if key == _MERGE and key in group:
            key = f"{_MERGE}{len(group)}"
        elif key in group:
            self.note(f"'{shorten(key)}' is given twice; the last counts", event)
        frame.key = key
        path = (*frame.path, key)
        self.key_locations[path] = self.where(event)
        return path

    def alias(self, event: Any) -> None:
        name = str(event.anchor)
        frame = self.frames[-1] if self.frames else None
        old, value = self.anchors.get(name, ((), f"*{name}"))
        if name not in self.anchors:
            self.note(f"'*{shorten(name)}' names no anchor above it and is read as text", event)
        elif any(each.container is value for each in self.frames):
            self.note(f"'*{shorten(name)}' stands inside what it names and is left out", event)
            value = None
        if frame and isinstance(frame.container, dict):
            if frame.key is None:
                self.place(str(value), event)
                return
            new: KeyPath = (*frame.path, frame.key)
        else:
            new = (*frame.path, len(frame.container)) if frame else ()
        self.place(self.copied(value, old, new, event), event)

    def copied(self, value: object, old: KeyPath, new: KeyPath, event: Any) -> object:
        """A copy of a value for another path, where the places of its parts are known too."""
        self.count(event)
        if len(new) > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep, aliases expanded", event, stop=True)
        for places in (self.locations, self.key_locations):
            if old in places:
                places[new] = places[old]
        if isinstance(value, dict):
            return {key: self.copied(each, (*old, key), (*new, key), event) for key, each in value.items()}
        if isinstance(value, list):
            return [self.copied(each, (*old, place), (*new, place), event) for place, each in enumerate(value)]
        return value

    def close(self, event: Any) -> None:
        frame = self.frames.pop()
        group = frame.container
        if isinstance(group, dict):
            for name in [name for name in group if name.startswith(_MERGE)]:
                self.merge(group, frame.path, name, event)

    def merge(self, group: dict[str, object], path: KeyPath, name: str, event: Any) -> None:
        """Put the keys of a merged group where the group that names it lacks them."""
        for old, source in _groups(group[name], (*path, name)):
            for key, value in source.items():
                if key not in group:
                    group[key] = self.copied(value, (*old, key), (*path, key), event)
        if any(True for _ in _groups(group[name], ())):
            del group[name]


def _groups(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, object]]]:
    """A group, or the groups of a list, each with its path."""
    if isinstance(value, dict):
        yield path, value
    elif isinstance(value, list):
        yield from (((*path, place), each) for place, each in enumerate(value) if isinstance(each, dict))
