"""YAML files read strictly: every value keeps its file, line and column, and nothing is guessed.

Anything irregular is an error that says what to write; files of other tools are read by `foreign_yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.convert import KeyPath, Locate, convert
from xe_sizer.profiles.scalars import parse_scalar
from xe_sizer.profiles.text_file import MAX_FILE_BYTES, name_of, read_text
from xe_sizer.profiles.yaml_events import MAX_DEPTH, Builder, build, events

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

PATH_HINT = "a path in a file starts at that file's folder, else at the working folder"


@frozen
class Document:
    """A YAML file: its text, and its plain data (dict, list, str, int, float, bool, None).

    Where each piece stands is found only when it is asked for, which is where something is wrong with it.
    """

    path: Path
    text: str
    value: object

    @cached_property
    def places(self) -> tuple[Mapping[KeyPath, Location], Mapping[KeyPath, Location]]:
        """Where values stand, and where keys stand."""
        builder = _built(self.path, self.text)
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


def _built(path: Path, text: str) -> Builder:
    """Data, places and problems of a document, event by event."""
    builder = Builder(name_of(path))
    build(builder, text)
    return builder


_Group = list[object] | dict[str, object]


class _IrregularError(Exception):
    """Something in a document that may be wrong; `Builder` says what and where."""


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
