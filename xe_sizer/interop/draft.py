"""What is gathered while a foreign file is read: facts with their origin, what is ignored and what is missing.

The tables of a tool's keys, which say so, stand first, with the reader of their YAML files.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import Problem
from xe_sizer.immutable import Immutable
from xe_sizer.interop.values import ImpossibleError, Unread, UnreadableError, is_on, text
from xe_sizer.software.stack import POOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from xe_sizer.errors import Location
    from xe_sizer.interop.values import Converter, Keys, Written

# Tables of a tool's keys: which scenario key each sets, what is filled in without it, and what has no counterpart.

Effect = Literal["memory or time", "none", "unknown", "refused"]
NOTHING = object()
"""The default of a key that the tool does not fill in."""


class Key(Immutable):
    """A key of a tool that sets a scenario key.

    names : what the tool calls it, the newest name first; dotted
    to : the scenario key; empty where the tool's own file reads the key
    read : its value as scenarios have it
    default : what the tool fills in where the key is absent, as a scenario value
    since, until : releases of the tool between which the key, or this default, holds; `until` is the first without
    """

    names: tuple[str, ...]
    to: str = ""
    read: Converter = text
    default: object = NOTHING
    since: str | None = None
    until: str | None = None


class Loss(Immutable):
    """Keys that change memory or time and have no counterpart in scenarios.

    names : keys, dotted; `*` stands for any text
    why : what they change, in a few words that follow the key: "runs evaluations, which are not counted"
    harmless : values that change nothing beside those that are empty, false or zero
    unless : the keys change something where they are switched off, not where they are on
    effect : of the keys; a file with refused ones is not read, as the answer would be that of another job
    """

    names: tuple[str, ...]
    why: str
    harmless: tuple[object, ...] = ()
    unless: bool = False
    effect: Effect = "memory or time"


class Table(Immutable):
    """All that is known about the keys of a tool.

    silent : keys that change neither memory nor time; `*` stands for any text
    file : the YAML file in `tools`, or a section of it, with further keys, losses and silent keys, which stand first
    further : tables that follow
    beside : tables of which only losses and silent keys follow
    prefixes : groups of the tool in which the names of all these stand
    """

    keys: tuple[Key, ...] = ()
    losses: tuple[Loss, ...] = ()
    silent: tuple[str, ...] = ()
    file: str = ""
    further: tuple[Table, ...] = ()
    beside: tuple[Table, ...] = ()
    prefixes: tuple[str, ...] = ("",)

    @cached_property
    def whole(self) -> Table:
        """The table with its file's and all that follow; the files are read here, when a tool was recognised."""
        tables = [_table_of(self.file), self, *(each.whole for each in (*self.further, *self.beside))]
        keys = [key for table in tables[: 2 + len(self.further)] for key in table.keys]
        losses = [loss for table in tables for loss in table.losses]

        def grouped(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple([f"{prefix}{name}" for name in names for prefix in self.prefixes])

        return Table(
            tuple([replace(key, names=grouped(key.names)) for key in keys]),
            tuple([replace(loss, names=grouped(loss.names)) for loss in losses]),
            grouped(tuple([name for table in tables for name in table.silent])),
        )

    def loss(self, name: str) -> Loss | None:
        """What is lost with a key."""
        return next((loss for loss in self.whole.losses if _among(name, loss.names)), None)

    def is_silent(self, name: str) -> bool:
        """Whether a key is known to change neither memory nor time."""
        return _among(name, self.whole.silent)

    def at(self, version: str | None) -> Iterator[Key]:
        """The keys of a release; those of the newest one where no release is named."""
        return (key for key in self.whole.keys if _holds(key, version))


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A key as a YAML file has it.

    read : a converter of `values`, or of another module of `interop`: `serving.share`
    words : what the tool's words mean, or where in `interop` the table of words stands that exports use too
    """

    names: str
    to: str = ""
    read: str = ""
    words: dict[str, Any] | str = ""
    default: Any = msgspec.UNSET
    since: str | None = None
    until: str | None = None

    def key(self) -> Key:
        words = _called(self.words) if isinstance(self.words, str) and self.words else self.words
        read = _called(self.read or ("word_of" if words else "text"))
        default = NOTHING if self.default is msgspec.UNSET else self.default
        return Key(globs(self.names), self.to, read(words) if words else read, default, self.since, self.until)


class _Lost(msgspec.Struct, forbid_unknown_fields=True):
    """Keys that are lost as a YAML file has them; fields as of `Loss`."""

    names: str
    why: str
    harmless: tuple[object, ...] = ()
    unless: bool = False
    effect: Effect = "memory or time"

    def loss(self) -> Loss:
        return Loss(globs(self.names), self.why, self.harmless, self.unless, self.effect)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A table as a YAML file has it."""

    keys: list[_Row] = []
    losses: list[_Lost] = []
    silent: str = ""


def _called(name: str) -> Any:
    """Something of `interop` by its name: `positive` of `values`, or `serving.share`."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(f"xe_sizer.interop.{module or 'values'}"), attribute)


@cache
def _table_of(file: str) -> Table:
    """The table of a YAML file in `tools`, or of one of its sections: `primus/maxtext`."""
    if not file:
        return Table()
    name, _, section = file.partition("/")
    said = msgspec.yaml.decode((Path(__file__).parent / "tools" / f"{name}.yaml").read_bytes())
    found = msgspec.convert(said[section] if section else said, _File)
    losses = tuple([row.loss() for row in found.losses])
    return Table(tuple([row.key() for row in found.keys]), losses, globs(found.silent))


def globs(words: str) -> tuple[str, ...]:
    """Names between blanks and line ends."""
    return tuple(words.split())


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns)


def _holds(key: Key, version: str | None) -> bool:
    """Whether a key has its default in a release; without a release those that still hold do."""
    if version is None:
        return key.until is None
    since, until = (parsed(each) if each else None for each in (key.since, key.until))
    found = parsed(version)
    return (since is None or found >= since) and (until is None or found < until)


def parsed(version: str) -> tuple[int, ...]:
    """The numbers of a release: 0.12.1 is (0, 12, 1)."""
    parts = (part for part in version.lstrip("v").split("."))
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)


Origin = Literal["read", "tool-default", "assumed", "flag"]
READ: Origin = "read"
TOOL_DEFAULT: Origin = "tool-default"
ASSUMED: Origin = "assumed"
FLAG: Origin = "flag"
_CERTAINTY: Mapping[Origin, int] = {FLAG: 3, READ: 2, TOOL_DEFAULT: 1, ASSUMED: 0}
NO_EFFECT = "changes neither memory nor time"
UNKNOWN_KEY = "unknown key: not read"
NOT_SET = "says nothing: it is empty or off"
_ALIKE = 0.9  # how alike two names are of which one is a slip of the other: a letter or two in twenty


class Fact(Immutable):
    """A scenario value: where it comes from, and in a few words why where that is not the key's own line.

    aside : why the scenario is written without it, though the file says it; empty where it is in
    instead : what the scenario is written with in place of the value; None: the value itself
    """

    value: object
    origin: Origin
    where: Location | None = None
    note: str = ""
    aside: str = ""
    instead: object = None

    @property
    def written(self) -> object:
        """What the scenario is written with."""
        return self.value if self.instead is None else self.instead


class Ignored(Immutable):
    """A foreign key that sets nothing; `effect` is what it would change.

    near : of a key that nobody knows: the one that was probably meant
    """

    key: str
    where: Location | None
    why: str
    effect: Effect = "memory or time"
    near: str = ""


class Missing(Immutable):
    """A scenario key that nothing says, and the flag to pass."""

    key: str
    why: str
    hint: str


class Draft:
    """Facts, ignored keys and missing ones of one import. What is stated first stays.

    keys : what the files say, by the tool's own dotted names; `take` marks them as read
    unread : keys whose values the files leave to what was not passed; no default takes their place
    version : the release of the tool, None where none is named
    impossible : values that the tool cannot run with
    following : what is stated once it is known what hardware was passed
    """

    def __init__(self, tool: str, keys: Keys, version: str | None = None) -> None:
        self.tool = tool
        self.keys: dict[str, Written] = {
            name: written for name, written in keys.items() if not isinstance(written.value, Unread)
        }
        self.unread: dict[str, Written] = {name: each for name, each in keys.items() if name not in self.keys}
        self.version = version
        self.facts: dict[str, Fact] = {}
        self.ignored: list[Ignored] = []
        self.missing: list[Missing] = []
        self.impossible: list[Problem] = []
        self.following: list[Callable[[Draft], None]] = []
        self._taken: set[str] = set()
        self._closed: set[str] = set()
        self._lost: set[str] = set()

    def peek(self, *names: str) -> Written | None:
        """The first of the keys that is there and is not empty; it stays to be read."""
        return next((self.keys[name] for name in names if name in self.keys and not _empty(self.keys[name])), None)

    def take(self, *names: str) -> Written | None:
        """The first of the keys that is there and is not empty; all of them count as read."""
        self._taken.update(name for name in names if name in self.keys)
        return self.peek(*names)

    def on(self, *names: str) -> Written | None:
        """`take`, where the value turns something on; None otherwise."""
        found = self.take(*names)
        return found if found is not None and is_on(found.value) else None

    def size(self, *names: str) -> int:
        """The first of the keys as a whole number, which stays to be read; 1 without one that is above zero."""
        found = self.peek(*names)
        text = str(found.value) if found is not None else ""
        return max(int(text), 1) if text.isdecimal() else 1

    def count(self, *patterns: str) -> None:
        """Keys that a part has read count as read; `*` stands for any text."""
        for name in self.keys:
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                self._taken.add(name)

    def value(self, written: Written | None, read: Converter) -> object:
        """A foreign value as a scenario has it; None without one, and where it is unreadable, which is told.

        A value that the tool itself cannot run with makes the files no job.
        """
        if written is None:
            return None
        try:
            return read(written.value)
        except UnreadableError as error:
            name = next((name for name, found in self.keys.items() if found is written), None)
            if isinstance(error, ImpossibleError):
                hint = f"correct it, or leave it out for what {self.tool} does without it"
                problem = Problem(f"{name}: {error}" if name else str(error), written.where, hint)
                known = {each.location for each in self.impossible}
                self.impossible += [problem] if written.where not in known else []
            elif name is not None:
                self.lose(name, f"not read: {error}")
            return None

    def fact(self, key: str) -> object:
        """The value of a scenario key so far; None without one."""
        return self.facts[key].value if key in self.facts else None

    @property
    def trainers(self) -> object:
        """GPUs that train so far: all but those of other pools; None where nobody said how many."""
        gpus = self.fact("gpus")
        others = [self.fact(f"{pool}.gpus") for pool in ("rollout", *POOLS)]
        return gpus - sum(one for one in others if isinstance(one, int)) if isinstance(gpus, int) else gpus

    def state(self, key: str, value: object, written: Written | None, note: str = "") -> None:
        """A scenario value that a file states; without its place it is assumed."""
        origin = READ if written is not None else ASSUMED
        self._add(key, Fact(value, origin, written.where if written else None, note))

    def default(self, key: str, value: object, note: str = "") -> None:
        """A scenario value that the tool fills in."""
        if key in self._closed:
            return
        self._add(key, Fact(value, TOOL_DEFAULT, None, note))

    def assume(self, key: str, value: object, why: str, where: Location | None = None) -> None:
        """A scenario value that neither a file nor the tool states."""
        self._add(key, Fact(value, ASSUMED, where, why))

    def derive(self, key: str, value: object, of: Iterable[str], note: str) -> None:
        """A scenario value that follows from those of others; as certain as the least certain of these."""
        facts = [self.facts[name] for name in of if name in self.facts]
        weakest = min(facts, key=lambda fact: _CERTAINTY[fact.origin])
        self._add(key, Fact(value, weakest.origin, weakest.where, note))

    def merge(self, other: Draft, without: Iterable[str] = ()) -> None:
        """Put in what another file says of the same job, where it is more certain than what is known."""
        for key, fact in other.facts.items():
            known = self.facts.get(key)
            if key not in without and (known is None or _CERTAINTY[fact.origin] > _CERTAINTY[known.origin]):
                self.facts[key] = fact
        self.ignored += other.ignored
        self.impossible += other.impossible
        self.following += other.following

    def replace(self, key: str, fact: Fact) -> None:
        """A scenario value in place of what was stated."""
        self.facts[key] = fact

    def narrow(self, key: str, value: object, why: str) -> None:
        """Write the scenario with less than a file states."""
        self.facts[key] = replace(self.facts[key], instead=value, note=why)

    def set_aside(self, key: str, why: str) -> None:
        """Keep a value out of the scenario that is written, in which something else does not go with it."""
        if key in self.facts:
            self.facts[key] = replace(self.facts[key], aside=why)

    def drop(self, key: str) -> None:
        """Take a scenario value back."""
        self.facts.pop(key, None)

    def close(self, *keys: str) -> None:
        """Leave scenario keys open that the tool has no default for in this file, though its table has one."""
        self._closed.update(keys)

    def _add(self, key: str, fact: Fact) -> None:
        if fact.value is not None:
            self.facts.setdefault(key, fact)

    def lose(self, name: str, why: str, effect: Effect = "memory or time") -> None:
        """A key of the file that sets nothing, and why; it counts as read."""
        self._taken.add(name)
        self._lost.add(name)
        if name in self.keys:
            self.ignored.append(Ignored(name, self.keys[name].where, why, effect))

    def miss(self, key: str, why: str, hint: str) -> None:
        """A scenario key that has to be passed."""
        if key not in self.facts:
            self.missing.append(Missing(key, why, hint))

    def apply(self, table: Table) -> None:
        """Read the keys that set a scenario key as they stand, and fill in the tool's defaults.

        Names of all releases are read; defaults are those of the draft's release.
        """
        for key in table.whole.keys:
            self._read(key)
        for key in table.at(self.version):
            if key.to and key.default not in (NOTHING, None) and self.unread.keys().isdisjoint(key.names):
                self.default(key.to, key.default)

    def _read(self, key: Key) -> None:
        if not key.to:
            return
        found = self.take(*(name for name in key.names if name not in self._lost))
        if found is None or key.to in self.facts:
            return
        self.state(key.to, self.value(found, key.read), found)
        if self._lost.intersection(key.names):
            self.close(key.to)  # what a file states and nobody can read is not what the tool does without it

    def finish(self, table: Table) -> None:
        """Say of every key that was not read why it is ignored."""
        told = {each.key for each in self.ignored}
        for name, written in self.keys.items():
            if name not in self._taken and name not in told:
                self.ignored.append(_ignored(name, written, table))
        for name, written in self.unread.items():
            effect: Effect = "none" if table.is_silent(name) else "memory or time"
            why = getattr(written.value, "why", "")
            self.ignored.append(Ignored(name, written.where, f"not known from the file: {why}", effect))


def _ignored(name: str, written: Written, table: Table) -> Ignored:
    loss = table.loss(name)
    if loss is not None and is_on(written.value) is not loss.unless and written.value not in loss.harmless:
        return Ignored(name, written.where, loss.why, loss.effect)
    if loss is not None or _empty(written):
        return Ignored(name, written.where, NOT_SET, "none")
    if table.is_silent(name):
        return Ignored(name, written.where, NO_EFFECT, "none")
    near = _nearest(name, table)
    return Ignored(name, written.where, f"{UNKNOWN_KEY}{f'; did you mean {near}?' if near else ''}", "unknown", near)


def _nearest(name: str, table: Table) -> str:
    """The key of the table that differs by a letter or two; empty where none does."""
    import difflib

    known = [each for key in table.whole.keys for each in key.names]
    known += [each for loss in table.whole.losses for each in loss.names] + list(table.whole.silent)
    near = difflib.get_close_matches(name, [each for each in known if "*" not in each], 1, _ALIKE)
    return near[0] if near else ""


def _empty(written: Written) -> bool:
    return written.value is None or written.value == ""
