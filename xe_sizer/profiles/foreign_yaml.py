"""YAML files of other tools: everything that can be read is read, and what was done to read it is noted.

Anchors, aliases and merge keys are expanded up to a bound; a file may hold several documents; a tag is left out and
its value kept as plain data, never constructed; of keys given twice the last counts. Templates of Helm and Jinja stay
as text where they are values, and lines that hold nothing else are left out. Line and column stay those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.convert import shorten
from xe_sizer.profiles.scalars import foreign_scalar
from xe_sizer.profiles.source import Document
from xe_sizer.profiles.text_file import name_of, read_text
from xe_sizer.profiles.yaml_events import MAX_DEPTH, Builder, build

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_events import Frame

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


@frozen
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
