"""Objects while a file is read: they change by assignments, and are data once it has been read."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python.values import Call, Name
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.readers.python.reading import Reading

MAX_PARTS = 50_000  # of a value with everything in it, each as often as levels are around it
_MAX_LEVELS = 50  # of values in values
MAX_NAME = 500  # characters of a name with all its dots
Plain = (type(None), bool, int, float, str)


@dataclass(eq=False)
class Thing:
    """What a call of something foreign gives, or a part of that of which nothing is known yet.

    label : how the file calls it, for names of its methods and for messages
    owner : the thing of which it is a part that was only asked for
    """

    name: str
    label: str
    where: Location
    args: tuple[Written, ...] = ()
    parts: dict[str, Written] = field(default_factory=dict)
    bases: tuple[str, ...] = ()
    made_by: list[str] = field(default_factory=list)
    passed_to: list[Written] = field(default_factory=list)
    owner: Thing | None = None

    def part(self, name: str) -> Written:
        """An attribute; one of which nothing is known is a thing of its own, since it may be set later."""
        if name not in self.parts and self.label.count(".") > _MAX_LEVELS:
            return Written(Unread(self.label, "its parts are nested too deep"), self.where)
        if name not in self.parts:
            label = f"{self.label}.{name}"[:MAX_NAME]
            self.parts[name] = Written(Thing("", label, self.where, owner=self), self.where)
        return self.parts[name]

    @property
    def is_blank(self) -> bool:
        """Whether it is a part of which nothing was said."""
        return not self.name and not self.said

    @property
    def said(self) -> dict[str, Written]:
        """The parts that were given a value, or parts of one."""
        return {name: each for name, each in self.parts.items() if not self._only_asked(each.value)}

    def _only_asked(self, value: object) -> bool:
        return isinstance(value, Thing) and value.owner is self and value.is_blank


@dataclass(eq=False)
class Scope:
    """Names of a module or a function, those of the module around it after its own."""

    around: Scope | None = None
    names: dict[str, Written] = field(default_factory=dict)
    prefix: str = ""  # what stands before the name of a class that is defined here
    elsewhere: set[str] = field(default_factory=set)  # names that a function declares global
    doubt: str | None = None  # why it is not known what a function returns

    def owner(self, name: str) -> Scope:
        """The scope that an assignment to a name changes."""
        scope = self
        while name in self.elsewhere and scope.around is not None:
            scope = scope.around
        return scope

    def find(self, name: str) -> Written | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        return None


@dataclass(eq=False)
class Function:
    """A function of a file that is read; `home` evaluates it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Written]
    home: Evaluator

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "lambda")


@dataclass(eq=False)
class LocalClass:
    """A class of a file that is read: its attributes and fields with those of its bases, and the names of these."""

    name: str
    parts: dict[str, Written]
    bases: tuple[str, ...]
    fields: tuple[str, ...]


@dataclass(eq=False)
class Deferred:
    """A name of another module, which is opened when the name is used."""

    module: str
    attribute: str

    @property
    def name(self) -> str:
        return f"{self.module}{'' if self.module.endswith('.') else '.'}{self.attribute}"


@dataclass(eq=False)
class Imported:
    """A module of which the file is at hand, by its dotted name."""

    name: str
    home: Evaluator


def copied(value: object, memo: dict[int, object], reading: Reading) -> object:
    """A copy of a value with all its parts; what is shared in it is shared in the copy. Raises Exhausted."""
    if id(value) in memo or not isinstance(value, (Thing, list, tuple, dict)):
        return memo.get(id(value), value)
    reading.spend(1 + len(value.parts if isinstance(value, Thing) else value))
    if isinstance(value, Thing):
        thing = Thing(value.name, value.label, value.where, bases=value.bases)
        thing.made_by, thing.passed_to = list(value.made_by), list(value.passed_to)
        memo[id(value)] = thing
        thing.args = tuple([Written(copied(each.value, memo, reading), each.where) for each in value.args])
        thing.parts = {
            name: Written(copied(each.value, memo, reading), each.where) for name, each in value.parts.items()
        }
        return thing
    if isinstance(value, dict):
        group: dict[object, Written] = {}
        memo[id(value)] = group
        group.update({key: Written(copied(each.value, memo, reading), each.where) for key, each in value.items()})
        return group
    items: list[Written] = []
    memo[id(value)] = items
    items += [Written(copied(each.value, memo, reading), each.where) for each in value]
    if isinstance(value, tuple):
        memo[id(value)] = tuple(items)
    return memo[id(value)]


class Freezer:
    """Turns what an evaluation left into data that does not change; what names itself ends there."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.left = MAX_PARTS
        self.inside: set[int] = set()
        self._said: dict[int, dict[str, Written]] = {}  # of things by their identity, since many name the same

    def written(self, written: Written) -> Written:
        return Written(self.value(written.value), written.where)

    def value(self, value: object) -> object:
        self._count(1 + len(self.inside))
        if isinstance(value, (*Plain, Name, Unread)):
            return value
        if isinstance(value, (Function, LocalClass, Imported, Deferred)):
            return Name(value.name)
        if isinstance(value, Thing) and not value.name and not self._said_of(value):
            return Unread(value.label, f"{value.label} is not said in this file")
        if self.left < 0 or self.reading.of_all < 0 or len(self.inside) > _MAX_LEVELS:
            return Unread("...", "there is too much of it")
        if id(value) in self.inside:
            return Unread("...", "it is part of itself")
        self.inside.add(id(value))
        try:
            return self._composed(value)
        finally:
            self.inside.discard(id(value))

    def _composed(self, value: object) -> object:
        if isinstance(value, Thing):
            return self.call(value)
        if isinstance(value, Mapping):
            return {str(key)[:MAX_NAME]: self.written(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple([self.written(each) for each in value])
        return Unread(type(value).__name__, "it is no configuration")

    def _said_of(self, thing: Thing) -> dict[str, Written]:
        if id(thing) not in self._said:
            self._said[id(thing)] = thing.said
        return self._said[id(thing)]

    def _count(self, parts: int) -> None:
        self.left -= parts
        self.reading.of_all -= parts

    def call(self, thing: Thing) -> Call:
        self._count(len(thing.made_by) + len(thing.passed_to))
        return Call(
            name=thing.name,
            args=tuple([self.written(each) for each in thing.args]),
            kwargs={name: self.written(each) for name, each in self._said_of(thing).items()},
            where=thing.where,
            bases=thing.bases,
            made_by=tuple(thing.made_by),
            passed_to=tuple(thing.passed_to),
        )
