"""YAML with places: each value with its file, line and column, strict for scenarios and lenient for other tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from msgspec import field

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import KeyPath, shorten, show
from xe_sizer.profiles.text import MAX_FILE_BYTES, foreign_scalar, name_of, parse_scalar, read_text

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import Locate

# Parser events, and what is wrong with the syntax in plain words.

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


# The walk: data and places at once, without recursion, so that deep nesting cannot exhaust the stack.

Node = tuple[Any, "list[Node] | dict[str, tuple[Any, Node]] | None"]
"""The mark of a value, and the nodes of what stands inside it: of a group by key, each after the mark of the key."""
Places = tuple[Mapping[KeyPath, Location], Mapping[KeyPath, Location]]
_STARTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_MERGE = "<<"


class _Reader:
    """Reads documents strictly: whatever is irregular is a problem that says what to write."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.values: list[Any] = []  # of each document
        self.nodes: list[Any] = []
        self.around: list[tuple[Any, Any, str | None, Any]] = []  # groups around the open one, with the key of the next

    def read(self, text: str) -> None:
        """Read a text; the problems are kept."""
        try:
            self.walk(text)
        except yaml.MarkedYAMLError as error:
            self.problems.append(_syntax_problem(error, self.name))
        except yaml.YAMLError as error:
            self.problems.append(Problem(f"not valid YAML: {error}", Location(self.name)))
        except InputError:
            pass  # the last problem to look for, which is kept too

    def walk(self, text: str) -> None:
        group: Any = self.values  # the open one, a list of documents at first
        nodes: Any = self.nodes
        key: str | None = None  # in a group, of the next value
        key_mark: Any = None
        value: Any
        inside: Any
        for event in events(text):
            kind = type(event)
            if kind in _ENDS:
                self.close(group, nodes, event)
                group, nodes, key, key_mark = self.around.pop()
                continue
            is_key = key is None and type(group) is dict
            if kind is yaml.ScalarEvent:
                value, inside = self.scalar(event, is_key), None
            elif kind in _STARTS:
                value, inside = ({}, {}) if kind is yaml.MappingStartEvent else ([], [])
                self.open(event, value, inside)
            elif kind is yaml.AliasEvent:
                value, inside = self.alias(event, is_key, group)
            else:
                self.outside(event)
                continue
            if is_key:
                regular = type(value) is str and value not in group and value != _MERGE
                key, key_mark = value if regular else self.odd_key(value, group, nodes, event), event.start_mark
            elif key is None:
                group.append(value)
                nodes.append((event.start_mark, inside))
            else:
                group[key], nodes[key] = value, (key_mark, (event.start_mark, inside))
                key = None
            if kind in _STARTS:
                self.around.append((group, nodes, key, key_mark))
                group, nodes, key = value, inside, None

    def fail(self, message: str, event: Any, hint: str | None = None, *, stop: bool = False) -> None:
        self.problems.append(Problem(message, _mark_place(event.start_mark, self.name), hint))
        if stop or len(self.problems) >= _MAX_PROBLEMS:
            raise InputError(self.problems)

    def outside(self, event: Any) -> None:
        """A document or the stream starts or ends."""
        if isinstance(event, yaml.DocumentStartEvent) and self.values:
            self.fail("a second document starts here", event, "one file holds one document", stop=True)

    def open(self, event: Any, value: Any, inside: Any) -> None:
        """A group or a list starts."""
        if len(self.around) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep", event, stop=True)
        self.check(event)

    def close(self, group: Any, nodes: Any, event: Any) -> None:
        """A group or a list ends."""

    def scalar(self, event: Any, is_key: bool) -> object:
        self.check(event)
        if not event.style and event.tag is None:
            try:
                return parse_scalar(event.value)
            except InputError as error:
                self.fail(error.problems[0].message, event, f"{error.problems[0].hint}; {_QUOTE_IT}")
        return event.value

    def alias(self, event: Any, is_key: bool, group: Any) -> tuple[Any, Any]:
        name = shorten(str(event.anchor))
        self.fail(f"aliases (*{name}) are not supported", event, f"write the value out; {_QUOTE_IT}")
        return None, None

    def check(self, event: Any) -> None:
        if event.tag is not None:
            self.fail(f"tags ({shorten(event.tag)}) are not supported", event, f"leave it out; {_QUOTE_IT}")
        if event.anchor is not None:
            self.fail(f"anchors (&{shorten(event.anchor)}) are not supported", event, _QUOTE_IT)

    def odd_key(self, key: object, group: dict[str, object], nodes: Any, event: Any) -> str:
        """What takes the place of a key that is no text, that merges, or that the group has already."""
        if not isinstance(key, str):
            self.fail(f"a key must be text, not {show(key)}", event, "quote the key")
        elif key in group:
            first = _mark_place(nodes[key][0], self.name)
            place = f"line {first.line}, column {first.column}"
            self.fail(f"'{show(key)[1:-1]}' is given twice; first at {place}", event, "remove one of them")
        elif event.style:
            return key
        else:
            self.fail("merge keys (<<) are not supported", event, "write the keys out")
        return f"<refused {len(group) + 1}>"  # so that its value is looked at too

    def places(self, document: int) -> Places:
        """Where values stand, and where keys stand, in the document of that number."""
        values: dict[KeyPath, Location] = {}
        keys: dict[KeyPath, Location] = {}
        rest: list[tuple[KeyPath, Node]] = [((), self.nodes[document])]
        while rest:
            path, (mark, inside) = rest.pop()
            values[path] = _mark_place(mark, self.name)
            if isinstance(inside, dict):
                keys |= {(*path, key): _mark_place(key_mark, self.name) for key, (key_mark, _) in inside.items()}
                rest += [((*path, key), each) for key, (_, each) in inside.items()]
            else:
                rest += [((*path, index), each) for index, each in enumerate(inside or ())]
        return values, keys


# YAML files read strictly: every value keeps its file, line and column, and nothing is guessed.
#
# Anything irregular is an error that says what to write; for files of other tools see below.

PATH_HINT = "a path in a file starts at that file's folder, else at the working folder"


class Document(Immutable):
    """A file's plain data (dict, list, str, int, float, bool, None).

    find_places : says where each piece stands, which is asked where something is wrong with it
    origins : where values come from that the file does not state itself, by dotted key
    stated_in : files that values stand in other than this one, by dotted key
    """

    path: Path
    value: object
    find_places: Callable[[], Places]
    origins: Mapping[str, str] = field(default_factory=dict)
    stated_in: Mapping[str, Path] = field(default_factory=dict)

    @cached_property
    def places(self) -> Places:
        """Where values stand, and where keys stand."""
        return self.find_places()

    def locate(self, key_path: KeyPath, *, key: bool = False) -> Location:
        """Where the value (or key) of a path stands; for an unknown path, its nearest known ancestor."""
        values, keys = self.places
        for length in range(len(key_path), -1, -1):
            path = key_path[:length]
            found = (keys.get(path) if key else None) or values.get(path)
            if found:
                return found
        return Location(name_of(self.path))

    def locate_below(self, above: KeyPath) -> Locate:
        """`locate` for paths below another."""
        return lambda key_path, *, key=False: self.locate((*above, *key_path), key=key)


def load_yaml(path: Path, root: type = dict, most_bytes: int = MAX_FILE_BYTES) -> Document:
    """Read one YAML document whose root is a group of keys, or a list where `root` is list.

    Raises
    ------
    InputError    unreadable or oversized file, no UTF-8, bad syntax, duplicate or non-text keys, ambiguous
                  scalars, aliases, anchors, tags, merge keys, several documents, deeper than MAX_DEPTH
    """
    reader = _Reader(name_of(path))
    reader.read(read_text(path, most_bytes))
    value = reader.values[0] if reader.values else None
    if not reader.problems and not isinstance(value, root):
        wanted = ("a list", "'- key: value' entries") if root is list else ("keys and values", "'key: value' lines")
        what = "is empty" if value is None else f"must hold {wanted[0]}, not {show(value)}"
        where = _mark_place(reader.nodes[0][0], reader.name) if reader.nodes else Location(reader.name, 1, 1)
        reader.problems.append(Problem(f"the file {what}", where, f"write {wanted[1]}"))
    if reader.problems:
        raise InputError(reader.problems)
    return Document(path, value, lambda: reader.places(0))


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
    """One document of another tool's file, with notes on how it was read."""

    notes: tuple[Problem, ...] = ()


def documents_of(path: Path, text: str) -> tuple[ForeignDocument, ...]:
    """The documents that hold something, of another tool's text that stands in a file of this name or is part of it.

    The first reading that succeeds counts: of the text as it is, with templates masked, with tabs replaced.

    Raises
    ------
    InputError    bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    name, text = name_of(path), text.removeprefix("\ufeff")
    reader = _LenientReader(name)
    reader.read(text)
    for repair in (_without_templates, _without_tabs):
        if not reader.problems and not reader.odd_keys:
            break
        repaired, notes = repair(text, name)
        if repaired != text:
            text = repaired
            reader = _LenientReader(name, notes)
            reader.read(text)
    if reader.problems:
        raise InputError(reader.problems)
    return tuple(
        ForeignDocument(path, value, partial(reader.places, number), notes=tuple(reader.notes))
        for number, value in enumerate(reader.values)
        if value is not None
    )


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


class _LenientReader(_Reader):
    """Reads on where the strict one reports a problem, and notes what it did."""

    def __init__(self, name: str, notes: list[Problem] | None = None) -> None:
        super().__init__(name)
        self.notes = notes or []
        self.anchors: dict[str, tuple[Any, Any]] = {}  # values with what stands inside their nodes
        self.count = 0
        self.odd_keys = False

    def outside(self, event: Any) -> None:
        self.anchors = {}  # each document has its own

    def fail(self, message: str, event: Any, hint: str | None = None, *, stop: bool = False) -> None:
        if stop:
            super().fail(message, event, hint, stop=True)
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(Problem(message, _mark_place(event.start_mark, self.name)))

    def count_value(self, event: Any) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            self.fail(f"more than {MAX_VALUES:,} values, aliases expanded", event, stop=True)

    def open(self, event: Any, value: Any, inside: Any) -> None:
        self.count_value(event)
        super().open(event, value, inside)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, inside

    def scalar(self, event: Any, is_key: bool) -> object:
        self.count_value(event)
        self.check(event)
        value: object = event.value.translate(_UNMASK)
        if is_key:
            pass
        elif event.tag is not None and event.tag not in _CORE_TAGS:
            value = value or event.tag.removeprefix(_PYTHON_NAME)
        elif event.tag not in _TEXT_TAGS and (event.tag or not event.style) and value == event.value:
            value = foreign_scalar(event.value)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, None
        return value

    def check(self, event: Any) -> None:
        if event.tag is not None and event.tag not in _CORE_TAGS:
            self.fail(f"the tag {shorten(event.tag.replace(_YAML_TAG, '!!'))} is left out", event)

    def odd_key(self, key: object, group: dict[str, object], nodes: Any, event: Any) -> str:
        if not isinstance(key, str):
            self.odd_keys = self.odd_keys or isinstance(key, list | dict)
            return super().odd_key(key, group, nodes, event)
        if key == _MERGE and key in group:
            return f"{_MERGE}{len(group)}"
        if key in group:
            self.fail(f"'{shorten(key)}' is given twice; the last counts", event)
        return key

    def alias(self, event: Any, is_key: bool, group: Any) -> tuple[Any, Any]:
        name = str(event.anchor)
        value, inside = self.anchors.get(name, (f"*{name}", None))
        if name not in self.anchors:
            self.fail(f"'*{shorten(name)}' names no anchor above it and is read as text", event)
        elif value is group or any(value is each for each, *_ in self.around):
            self.fail(f"'*{shorten(name)}' stands inside what it names and is left out", event)
            value, inside = None, None
        return (str(value), None) if is_key else (self.copied(value, len(self.around), event), inside)

    def copied(self, value: object, depth: int, event: Any) -> object:
        """A copy of a value for another place at that depth."""
        self.count_value(event)
        if depth > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep, aliases expanded", event, stop=True)
        if isinstance(value, dict):
            return {key: self.copied(each, depth + 1, event) for key, each in value.items()}
        return [self.copied(each, depth + 1, event) for each in value] if isinstance(value, list) else value

    def close(self, group: Any, nodes: Any, event: Any) -> None:
        """Put the keys of merged groups where the group that names them lacks them."""
        for name in [name for name in group if name.startswith(_MERGE)] if isinstance(group, dict) else ():
            merged, (_, (_, inside)) = group[name], nodes[name]
            each = zip(merged, inside, strict=True) if isinstance(merged, list) else [(merged, (None, inside))]
            sources = [(source, places) for source, (_, places) in each if isinstance(source, dict)]
            for source, places in sources:
                for key, value in source.items():
                    if key not in group:
                        group[key], nodes[key] = self.copied(value, len(self.around), event), places[key]
            if sources:
                del group[name], nodes[name]
