"""References of configurations to their own keys and to variables, and overrides from command lines.

OmegaConf: `${a.b}`, `${.b}` (from the group of the key; each further dot one group out), `${oc.env:V,default}`,
`${oc.select:a.b,default}`; Primus and Compose: `${V:default}`, `${V:-default}`, `${V}`; Hydra: `a.b=c`, `+a.b=c`,
`~a.b`. What else a resolver may compute stays Unread, and so does a variable that was not passed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.importers.readers.flat import flat
from xe_sizer.importers.written import Unread, Written
from xe_sizer.profiles.text import foreign_scalar
from xe_sizer.profiles.yaml_reader import documents_of

if TYPE_CHECKING:
    from xe_sizer.importers.written import Keys

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
_COMPUTED: Mapping[str, Callable[[list[float]], float]] = {"multiply": math.prod, "sum": math.fsum, "add": math.fsum}


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
        except (ValueError, OverflowError):
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
