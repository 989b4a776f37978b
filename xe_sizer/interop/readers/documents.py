"""Documents of other tools as plain data with places: JSON, TOML, flat keys and interpolation."""

from __future__ import annotations

import json
import math
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.interop.values import Unread, Written
from xe_sizer.profiles.convert import shorten
from xe_sizer.profiles.text import foreign_scalar, name_of
from xe_sizer.profiles.yaml_reader import MAX_DEPTH, MAX_VALUES, ForeignDocument, documents_of

if TYPE_CHECKING:
    from xe_sizer.interop.values import Keys
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Document

# The values of a document under dotted keys, each with its place.


def flat(document: Document) -> dict[str, tuple[object, Location]]:
    """Values by dotted key: `{train: {steps: 5}}` gives `train.steps`.

    A list of plain values is one value; the groups of a list have their number in the key (`datasets.0.path`).
    An empty group is a value too. Nothing has a key where the document is one plain value.
    """
    leaves = _leaves(document.value, ())
    return {".".join(map(str, path)): (value, document.locate(path)) for path, value in leaves if path}


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list) and _holds_groups(value):
        for place, each in enumerate(value):
            yield from _leaves(each, (*path, place))
    else:
        yield path, value


def _holds_groups(value: list[object]) -> bool:
    return any(isinstance(each, dict) or (isinstance(each, list) and _holds_groups(each)) for each in value)


# References of configurations to their own keys and to variables, and overrides from command lines.
#
# OmegaConf: `${a.b}`, `${.b}` (from the group of the key; each further dot one group out), `${oc.env:V,default}`,
# `${oc.select:a.b,default}`; Primus and Compose: `${V:default}`, `${V:-default}`, `${V}`; Hydra: `a.b=c`, `+a.b=c`,
# `~a.b`. What else a resolver may compute stays Unread, and so does a variable that was not passed.

MAX_CHARACTERS = 10_000  # of a text with its references filled in
MAX_KEYS = 100_000  # with groups that are referred to written out
MAX_OVERRIDES = 5_000
_MAX_REFERENCES = 1_000  # of one text
_MAX_DEPTH = 50  # references to values that refer to others
_INNERMOST = re.compile(r"(?<!\\)\$\{([^${}]*)\}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_VARIABLE_OR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):-?(.*)", re.DOTALL)
_INDEX = re.compile(r"\[([^\]]*)\]")
_OVERRIDE = re.compile(r"(\+\+|\+|~)?([A-Za-z_][\w./@-]*)(?:=(.*))?", re.DOTALL)
_COMPUTED: Mapping[str, Callable[[list[float]], float]] = {
    "multiply": math.prod, "mul": math.prod, "sum": math.fsum, "add": math.fsum, "max": max,
    "div": lambda parts: parts[0] / math.prod(parts[1:]),
}  # fmt: skip


class _UnknownError(Exception):
    """A reference whose value is not known; says why."""


def resolved(keys: Keys, given: Mapping[str, str] | None = None) -> Keys:
    """The keys with their references filled in; a reference to a group brings its keys.

    given : values of variables, and of keys, that were passed by name; they come first
    """
    resolver = _Resolver(keys, given or {})
    found: dict[str, Written] = {}
    for name in resolver.keys:
        for key, written in resolver.expanded(name, resolver.value(name), 0):
            if len(found) >= MAX_KEYS + len(keys):
                return found
            found[key] = written
    return found


def overridden(keys: Keys, overrides: Iterable[Written]) -> Keys:
    """The keys after overrides as Hydra's command line has them; what is no override is left out.

    Raises
    ------
    InputError    more than MAX_OVERRIDES
    """
    set_by: dict[str, Written] = {}
    removed: set[str] = set()
    for number, override in enumerate(overrides):
        if number >= MAX_OVERRIDES:
            raise InputError(Problem(f"more than {MAX_OVERRIDES:,} overrides", override.where))
        match = _OVERRIDE.fullmatch(str(override.value).strip())
        if match is None or (match[3] is None and match[1] != "~"):
            continue
        name = match[2].replace("/", ".").partition("@")[0]
        removed.add(name)
        set_by = {key: each for key, each in set_by.items() if not _is_in(key, {name})}
        if match[1] != "~":
            set_by |= _written_out(name, match[3], override.where)
    return {key: each for key, each in keys.items() if not _is_in(key, removed)} | set_by


def _is_in(key: str, names: set[str]) -> bool:
    """Whether a key is one of these, or in a group that is."""
    parts = key.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _written_out(name: str, text: str, where: Location) -> Keys:
    """A value of an override, which may be a list or a group in brackets."""
    if text[:1] not in {"[", "{"}:
        plain = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else None
        return {name: Written(foreign_scalar(text) if plain is None else plain, where)}
    try:
        (document,) = documents_of(Path(where.name), f"x: {re.sub(r':(?=[^ /])', ': ', text)}")
    except (InputError, ValueError):
        return {name: Written(Unread(text, "it is no list or group"), where)}
    return {name + key[1:]: Written(value, where) for key, (value, _) in flat(document).items()}


class _Group(Unread):
    """A reference to a group of keys; `text` is its name."""


class _Resolver:
    """Values of keys with references filled in, each found once."""

    def __init__(self, keys: Keys, given: Mapping[str, str]) -> None:
        passed = {
            name: Written(foreign_scalar(text), Location(f"--set {name}"))
            for name, text in given.items()
            if name in keys
        }
        self.keys: dict[str, Written] = {**keys, **passed}
        self.given = given
        self.known: dict[str, Written] = {}
        self.open: list[str] = []
        self.sorted = sorted(self.keys)

    def value(self, name: str) -> Written:
        """The value of a key. Without recursion into itself: a key that refers to itself is Unread."""
        if name not in self.known:
            written = self.keys[name]
            self.open.append(name)
            self.known[name] = Written(self.filled(written.value, name), written.where)
            self.open.pop()
        return self.known[name]

    def expanded(self, name: str, written: Written, depth: int) -> Iterator[tuple[str, Written]]:
        """A key with its value, or the keys of the group to which it refers."""
        if not isinstance(written.value, _Group):
            yield name, written
        elif depth >= _MAX_DEPTH:
            yield name, Written(Unread(written.value.text, "references are nested too deep"), written.where)
        else:
            for part, source in self.group(written.value.text).items():
                yield from self.expanded(f"{name}.{part}", self.value(source), depth + 1)

    def filled(self, value: object, name: str) -> object:
        """A value with its references filled in."""
        if isinstance(value, list):
            return [self.filled(each, name) for each in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        text = value
        try:
            for _ in range(_MAX_REFERENCES):
                found = _INNERMOST.search(text)
                if found is None:
                    return text
                meant = self.meant(found[1].strip(), name)
                if found[0] == text:
                    return meant
                if isinstance(meant, Unread):
                    raise _UnknownError(meant.why)
                text = f"{text[: found.start()]}{'' if meant is None else meant}{text[found.end() :]}"
                if len(text) > MAX_CHARACTERS:
                    raise _UnknownError("it is too long")
        except _UnknownError as why:
            return Unread(value, str(why))
        return Unread(value, "it has too many references")

    def meant(self, reference: str, name: str) -> object:
        """What stands between `${` and `}`. Raises _UnknownError."""
        resolver, colon, rest = reference.partition(":")
        if not colon:
            return self.referred(reference, name)
        first, comma, default = rest.partition(",")
        if resolver in {"oc.env", "env"}:
            return self.variable(first.strip(), default.strip() if comma else None)
        if resolver in {"oc.select", "oc.deprecated"}:
            try:
                return self.referred(first.strip(), name)
            except _UnknownError:
                if not comma:
                    raise
                return foreign_scalar(default.strip())
        if resolver == "oc.decode":
            return foreign_scalar(rest.strip())
        if resolver in _COMPUTED:
            return self.computed(resolver, rest)
        either = _VARIABLE_OR.fullmatch(reference)
        if either and (_VARIABLE.fullmatch(either[1]) or reference.startswith(f"{either[1]}:-")):
            return self.variable(either[1], either[2])
        raise _UnknownError(f"'{resolver}' is not computed")

    def variable(self, name: str, default: str | None) -> object:
        if name in self.given:
            return foreign_scalar(self.given[name])
        if default is None or default in {"null", "None"}:
            raise _UnknownError(f"${name} is not known; pass --set {name}=VALUE")
        return foreign_scalar(default.strip("'\"")) if default.strip("'\"") else ""

    def computed(self, resolver: str, rest: str) -> object:
        try:
            number = _COMPUTED[resolver]([float(each) for each in rest.split(",")])
        except (ValueError, OverflowError, ZeroDivisionError):
            raise _UnknownError(f"'{resolver}' has an operand that is no number") from None
        return int(number) if number.is_integer() else number

    def referred(self, reference: str, name: str) -> object:
        """The value of a key by its absolute or relative name. Raises _UnknownError."""
        key = _absolute(_INDEX.sub(r".\1", reference), name)
        if key in self.open or name.startswith(f"{key}."):
            raise _UnknownError("it refers to itself")
        if len(self.open) > _MAX_DEPTH:
            raise _UnknownError("references are nested too deep")
        if key in self.keys:
            return self.value(key).value
        around, _, place = key.rpartition(".")
        if place.isdigit() and around in self.keys and around not in self.open:
            items = self.value(around).value
            if isinstance(items, list) and int(place) < len(items):
                return items[int(place)]
        if self.group(key):
            return _Group(key, "it is a group of keys")
        if key in self.given or _VARIABLE.fullmatch(key):
            return self.variable(key, None)
        raise _UnknownError(f"'{key}' is no key of the file")

    def group(self, name: str) -> dict[str, str]:
        """Keys below a name: what follows it, and the whole key."""
        start = f"{name}."
        below = self.sorted[bisect_left(self.sorted, start) : bisect_left(self.sorted, f"{name}/")]  # '/' follows '.'
        return {key[len(start) :]: key for key in below}


def _absolute(reference: str, name: str) -> str:
    """A relative name (`.b`, `..b`) seen from a key."""
    dots = len(reference) - len(reference.lstrip("."))
    if not dots:
        return reference
    groups = name.split(".")[:-dots]
    return ".".join([*groups, reference[dots:]])


# JSON files of other tools: with comments, trailing commas and single quotes, as people write them.
#
# Every value and key keeps its line and column. Nothing is read by recursion, so deep nesting cannot exhaust the stack.

_TOKEN = re.compile(
    r"""(?P<blank>[\s\ufeff]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[{}\[\]:,])
      | (?P<word>[^\s{}\[\]:,"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, object] = {"None": None, "undefined": None}
_END = {"{": "}", "[": "]"}


def read_json(path: Path, text: str) -> ForeignDocument:
    """JSON of a text that stands in a file of this name, or is part of one; comments and trailing commas are noted.

    Raises
    ------
    InputError    bad syntax, deeper than MAX_DEPTH, more than MAX_VALUES
    """
    reader = _Reader(text, name_of(path))
    reader.read()
    places = reader.value_places, reader.key_places
    return ForeignDocument(path, reader.root, lambda: places, notes=tuple(reader.notes))


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


# TOML files of other tools: the standard library reads the values, and their lines are found beside it.

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_NAME})[ \t]*\]\]?")
_KEY = re.compile(rf"[ \t]*({_NAME})[ \t]*=[ \t]*")
_PARTS = re.compile(_PART)
_INLINE = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\#[^\n]*|[\[\]{}]|\n", re.DOTALL)
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_toml(path: Path, text: str) -> ForeignDocument:
    """TOML of a text that stands in a file of this name; values inside `[ ]` and `{ }` have the place of their key.

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
    return ForeignDocument(path, value, lambda: (values, keys))


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
