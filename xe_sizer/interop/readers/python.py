"""Python that launch scripts consist of, evaluated without running it: what is not known stays unknown."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.interop.readers.python_values import Call, Name, PythonText
from xe_sizer.interop.values import Unread, Written
from xe_sizer.profiles.text import STDIN, foreign_scalar, name_of, read_text

# Python files and notebooks of others: read as syntax trees, evaluated as data, never executed or imported.

__all__ = ["Call", "Module", "Name", "Unread", "modules_near", "read_python"]


# Modules that a Python file imports, where their files lie near it: in its folder, below it, or in its checkout.

_LEVELS_UP = 8  # folders above the file, of which one may be the root of its packages
_LEVELS_DOWN = 4
_MOST_FOLDERS = 100  # below the file
_SOURCES = "src"


def modules_near(path: Path) -> Callable[[str], tuple[str, str] | None]:
    """What finds the text and name of a module's file by its dotted name, relative names as seen from the file."""
    roots: list[Path] = []

    def find(module: str) -> tuple[str, str] | None:
        if path == STDIN:
            return None
        if module.startswith("."):
            level = len(module) - len(module.lstrip("."))
            folders = [path.parent, *path.resolve().parents[1:]][level - 1 : level]
            return _first(folders, module[level:])
        if not roots:
            roots.extend(_roots(path))
        return _first(roots, module)

    return find


def _first(roots: list[Path], module: str) -> tuple[str, str] | None:
    parts = [part for part in module.split(".") if part]
    if not all(part.isidentifier() for part in parts):
        return None
    for root in roots:
        package = root.joinpath(*parts, "__init__.py")
        for file in (root.joinpath(*parts).with_suffix(".py"), package) if parts else (package,):
            try:
                if file.is_file():
                    return read_text(file), name_of(file)
            except (OSError, ValueError, InputError):
                continue
    return None


def _roots(path: Path) -> list[Path]:
    """Folders in which a package may begin."""
    above = [path.parent, *path.resolve().parents[1:_LEVELS_UP]]
    sources = [folder / _SOURCES for folder in above]
    return [*above, *(each for each in sources if each.is_dir()), *islice(_below(path.parent), _MOST_FOLDERS)]


def _below(folder: Path) -> Iterator[Path]:
    """Folders below a folder that are no packages, nearest first."""
    level = [folder]
    for _ in range(_LEVELS_DOWN):
        level = [each for parent in level for each in _folders_in(parent)]
        yield from level


def _folders_in(folder: Path) -> list[Path]:
    try:
        found = sorted(each for each in islice(folder.iterdir(), 1000) if each.is_dir())
    except OSError:
        return []
    return [each for each in found if each.name.isidentifier() and not (each / "__init__.py").exists()][:_MOST_FOLDERS]


# Calls of functions whose file is at hand: their statements are evaluated with the arguments of the call.


def call_function(function: Function, args: list[Written], kwargs: dict[str, Written], where: Location) -> Written:
    """What a function gives for these arguments; a parameter without a value is a thing that is not known."""
    home = function.home
    if home.reading.depth >= MAX_DEPTH:
        return Written(Unread(f"{function.name}(...)", "calls are nested too deep"), where)
    home.reading.spend(len(function.defaults))
    scope = _bound(function, args, kwargs)
    if isinstance(function.node, ast.Lambda):
        return home.of(function.node.body, scope)
    home.reading.depth += 1
    written = Written(None, where)
    try:
        run(home, function.node.body, scope)
    except Returned as returned:
        written = returned.written
    except Raised as raised:
        written = Written(Unread(f"{function.name}(...)", f"it raises {raised}"), where)
    except Jump:
        pass  # a break outside of a loop
    finally:
        home.reading.depth -= 1
    if isinstance(written.value, Thing) and home.module:
        written.value.made_by.append(f"{home.module}.{function.name}")
    if scope.doubt is not None:
        return Written(Unread(f"{function.name}(...)", scope.doubt), where)
    return written


def _bound(function: Function, args: list[Written], kwargs: dict[str, Written]) -> Scope:
    """The names of a function when its statements begin."""
    _given, spec = function.home.reading.given, function.node.args
    places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    named = {*places, *(each.arg for each in spec.kwonlyargs)}
    names = {**function.defaults, **dict(zip(places, args, strict=False))}
    names |= {name: each for name, each in kwargs.items() if name in named}
    for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        if each.arg not in names:
            place = function.home.text.where(each)
            names[each.arg] = Written(Thing("", each.arg, place), place)
    start = function.home.text.where(function.node)
    if spec.vararg:
        names[spec.vararg.arg] = Written(tuple(args[len(places) :]), start)
    if spec.kwarg:
        rest: dict[object, Written] = {name: each for name, each in kwargs.items() if name not in named}
        names[spec.kwarg.arg] = Written(rest, start)
    return Scope(function.scope, names)


def is_class_method(node: ast.AST) -> bool:
    """Whether a function of a class gets the class as its first argument."""
    return any(isinstance(each, ast.Name) and each.id == "classmethod" for each in getattr(node, "decorator_list", ()))


# Operators and methods on plain values, within bounds on what they make.

MAX_ITEMS = 10_000  # of a list or text that is computed, and parts of a value with everything in it
CHARACTERS = 100  # of a text that count as one part
_MOST_CHARACTERS = 1_000_000  # of a text while it is made
_MAX_BITS = 256
_WIDE = re.compile(r"\d{4}")
ERRORS = (ArithmeticError, TypeError, ValueError, AttributeError, LookupError)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARISON: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda item, group: item in group, ast.NotIn: lambda item, group: item not in group,
}  # fmt: skip
_TEXT_METHODS = frozenset({
    "lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "startswith", "endswith", "removeprefix",
    "removesuffix", "title", "capitalize", "isdigit", "partition", "rpartition", "splitlines", "find", "count",
})  # fmt: skip


class Unknown(Exception):  # noqa: N818
    """A value that is not known, or not computed; says why."""


def plain(value: object, reading: Reading, end: int | None = None) -> Any:
    """A value of literals alone as Python has it; a part that is shared counts each time it is met.

    end : steps that must be left for its parts; it has at most MAX_ITEMS

    Raises Unknown: something in it is not known, or it is too large; and Exhausted.
    """
    end = reading.steps - MAX_ITEMS if end is None else end
    reading.spend(parts_of_text(value) if isinstance(value, str) else 1)
    if reading.steps < end:
        raise Unknown("it is too large")
    if isinstance(value, Plain):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([plain(each.value, reading, end) for each in value])
    if isinstance(value, dict):
        return {key: plain(each.value, reading, end) for key, each in value.items()}
    raise Unknown(f"{label_of(value)} is not known")


def parts_of_text(text: str) -> int:
    """For how many parts a text counts."""
    return 1 + len(text) // CHARACTERS


def label_of(value: object) -> str:
    """How messages call a value."""
    label = value.label if isinstance(value, Thing) else getattr(value, "text", None) or getattr(value, "name", "it")
    return str(label)


def truth(value: object) -> bool:
    """Whether a value counts as true. Raises Unknown: that is not known."""
    if isinstance(value, (list, tuple, dict)):
        return bool(value)
    if isinstance(value, (Function, LocalClass)):
        return True
    if isinstance(value, Plain):
        return bool(value)
    raise Unknown(f"{label_of(value)} is not known")


def compared(kind: ast.cmpop, left: object, right: object, reading: Reading) -> bool:
    """A comparison. Raises Unknown: a side of it is not known; and ERRORS."""
    if isinstance(kind, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        wanted = isinstance(kind, (ast.Is, ast.Eq))
        if isinstance(left, Name) and left == right:
            return wanted
        if (left is None and _is_something(right)) or (right is None and _is_something(left)):
            return not wanted
    return bool(_COMPARISON[type(kind)](plain(left, reading), plain(right, reading)))


def _is_something(value: object) -> bool:
    """Whether a value is surely not None: what a class makes is an object."""
    if isinstance(value, Thing):
        return value.name.rpartition(".")[2][:1].isupper()
    return isinstance(value, (list, tuple, dict, Function, LocalClass))


def unary(kind: ast.unaryop, value: object, reading: Reading) -> object:
    """`-x` and the like. Raises Unknown, and ERRORS."""
    return not truth(value) if isinstance(kind, ast.Not) else _UNARY[type(kind)](plain(value, reading))


def arithmetic(kind: ast.operator, left: object, right: object, reading: Reading) -> object:
    """An operator on numbers, texts, lists or groups. Raises Unknown: a side is not known, the result too large."""
    groups = (list, tuple, dict)
    if isinstance(left, groups) and isinstance(right, (*groups, int)):
        a, b = left, right  # the items stay as they are written, each with its place
    else:
        a, b = plain(left, reading), plain(right, reading)
    if type(kind) not in _ARITHMETIC or _is_too_large(kind, a, b):
        raise Unknown("it is too large or of no kind that is computed")
    result = _ARITHMETIC[type(kind)](a, b)
    if isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise Unknown("it is too large")
    return result


def _is_too_large(kind: ast.operator, left: Any, right: Any) -> bool:
    if isinstance(kind, (ast.Pow, ast.LShift)):
        bits = left.bit_length() if isinstance(left, int) else 1
        return isinstance(right, int) and abs(right) * max(bits, 1) > _MAX_BITS * 4
    if isinstance(kind, ast.Mod) and isinstance(left, str):
        return bool(_WIDE.search(left)) or "*" in left or _fills_too_much(left.count("%"), right)
    if isinstance(kind, (ast.Mult, ast.Add)):
        sizes = [len(each) if isinstance(each, (str, list, tuple)) else 0 for each in (left, right)]
        counts = [each if isinstance(each, int) else 1 for each in (left, right)]
        size = sum(sizes) if isinstance(kind, ast.Add) else sizes[0] * counts[1] + sizes[1] * counts[0]
        return size > MAX_ITEMS
    return False


def _fills_too_much(places: int, values: object) -> bool:
    """Whether values that are written at so many places of a text, at most 999 wide each, may make too much of it."""
    return places * (999 + len(repr(values))) > _MOST_CHARACTERS


def formatted(value: object, spec: str, conversion: int, reading: Reading) -> str:
    """A value inside an f-string. Raises Unknown, and ERRORS."""
    if _WIDE.search(spec):
        raise Unknown("it is too wide")
    known = plain(value, reading)
    return format(repr(known) if conversion == ord("r") else known, spec)


def method_of_text(text: str, name: str, args: list[Written], reading: Reading) -> object:
    """What a method of a text gives. Raises Unknown: it is not computed; and ERRORS."""
    known = [plain(each.value, reading) for each in args]
    reading.spend(parts_of_text(text))
    if name == "join":
        if len(text) * len(known[0]) > _MOST_CHARACTERS:
            raise Unknown("it is too large")
        made: Any = text.join(known[0])
    elif name == "replace":
        if text.count(known[0]) * len(known[1]) > _MOST_CHARACTERS:
            raise Unknown("it is too large")
        made = text.replace(known[0], known[1]) if known[0] else text
    elif name == "format" and _has_simple_places(text) and not _fills_too_much(text.count("{"), known):
        made = text.format(*known)
    elif name in _TEXT_METHODS:
        made = getattr(text, name)(*known)
    else:
        raise Unknown(f"'{name}' of a text is not computed")
    if isinstance(made, (str, list)) and len(made) > MAX_ITEMS:
        raise Unknown("it is too large")
    return made


def _has_simple_places(text: str) -> bool:
    """Whether the places of a text for `format` are numbers or nothing, not wider than three digits say."""
    places = [(field, spec or "") for _, field, spec, _ in Formatter().parse(text) if field is not None]
    return not any("." in field or "[" in field or "{" in spec or _WIDE.search(spec) for field, spec in places)


# Objects while a file is read: they change by assignments, and are data once it has been read.

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


# Functions and classes that a file defines.

Run = Callable[["Evaluator", list[ast.stmt], Scope], None]


def is_cell(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a cell of a marimo notebook, whose names are those of the whole file."""
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(isinstance(each, ast.Attribute) and each.attr == "cell" for each in decorators)


def define_function(ev: Evaluator, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Bind a function; its defaults are evaluated where it stands."""
    function = Function(node, scope, ev.defaults(node.args, scope), ev)
    scope.names[node.name] = ev.here(function, node)


def define_class(ev: Evaluator, node: ast.ClassDef, scope: Scope, run: Run) -> None:
    """Bind a class: its attributes after those of its bases, as far as these are in files at hand."""
    parts: dict[str, Written] = {}
    names: list[str] = []
    fields: list[str] = []
    for base in reversed([ev.of(each, scope).value for each in node.bases]):
        names.append(label_of(base))
        if isinstance(base, LocalClass):
            ev.reading.spend(len(base.parts) + len(base.bases))
            parts |= base.parts
            names += base.bases
            fields += [each for each in base.fields if each not in fields]
    name = f"{scope.prefix}{node.name}"
    inner = Scope(scope, prefix=f"{name}.")
    run(ev, node.body, inner)
    own = [
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    fields += [each for each in own if each not in fields]
    parts |= {name: _default(ev, each) for name, each in inner.names.items()}
    scope.names[node.name] = ev.here(LocalClass(name, parts, tuple(names), tuple(fields)), node)


def _default(ev: Evaluator, written: Written) -> Written:
    """The default of a field: `field(default=..., default_factory=...)` says it in other words."""
    thing = written.value
    if not isinstance(thing, Thing) or thing.name.rpartition(".")[2] not in {"field", "Field"}:
        return written
    if "default" in thing.parts or thing.args:
        return thing.parts.get("default") or thing.args[0]
    factory = thing.parts.get("default_factory")
    if factory is None:
        return Written(Thing("", thing.label, thing.where), written.where)
    return ev.made_by(factory)


# What all files of one reading share: bounds, given values, calls that were met, and modules that were opened.

MAX_STEPS = 100_000  # expressions and statements that are evaluated for one value, and parts of what they make
MAX_STEPS_OF_ALL = 1_000_000  # the same, for everything that a file is asked for
MAX_DEPTH = 20  # calls inside calls
MAX_MODULES = 50
MAX_CHARACTERS_OF_MODULES = 1_000_000  # all together
_MOST_NAMES = 1000  # of modules that are looked for


class Exhausted(Exception):  # noqa: N818
    """More steps than a configuration takes."""


class Reading:
    """Bounds and findings of one reading.

    given : values of variables that were passed by name; they win over assignments
    opened : opens the module of a dotted name where its file is at hand, else None
    """

    def __init__(self, given: Mapping[str, str], opened: Callable[[str, Reading], Evaluator | None]) -> None:
        self.given, self._opened = given, opened
        self.steps = MAX_STEPS
        self.of_all = MAX_STEPS_OF_ALL
        self.depth = 0
        self.characters = MAX_CHARACTERS_OF_MODULES
        self.calls: list[Written] = []
        self._modules: dict[str, Evaluator | None] = {}

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises Exhausted: there are no more."""
        self.steps -= steps
        self.of_all -= steps
        if self.steps < 0 or self.of_all < 0:
            raise Exhausted

    def start(self) -> None:
        """Begin with another value."""
        self.steps = MAX_STEPS

    def module(self, name: str) -> Evaluator | None:
        """A module by its dotted name, opened once; None where its file is not at hand, or is being opened."""
        opened = sum(each is not None for each in self._modules.values())
        if name not in self._modules and opened < MAX_MODULES and len(self._modules) < _MOST_NAMES:
            self._modules[name] = None
            self._modules[name] = self._opened(name, self)
        return self._modules.get(name)


# Calls: functions and classes of the file are evaluated, a few of the language computed, all others kept as data.

_CONFIGURED = frozenset({"nemo_run.Config", "nemo_run.Partial", "functools.partial", "fiddle.Config", "fiddle.Partial"})
"""Calls that only write down a call of their first argument."""


def called(ev: Evaluator, node: ast.Call, scope: Scope) -> Written:
    """What a call gives. Raises Unknown, and what `plain.ERRORS` lists."""
    args, kwargs = _arguments(ev, node, scope)
    if isinstance(node.func, ast.Attribute):
        base = ev.of(node.func.value, scope)
        if isinstance(base.value, (list, tuple, dict, str)):
            return _method(ev, base, node.func.attr, args, kwargs, node)
        if isinstance(base.value, Thing) and (method := METHODS.get((_last(base.value.name), node.func.attr))):
            ev.reading.spend(len(base.value.parts))
            return method(base.value, args, kwargs, ev.text.where(node))
        callee = ev.attribute(base, node.func).value
        if isinstance(callee, Function) and isinstance(base.value, LocalClass) and is_class_method(callee.node):
            args.insert(0, base)
    else:
        callee = ev.of(node.func, scope).value
    return call_of(ev, callee, args, kwargs, node)


def call_of(ev: Evaluator, callee: object, args: list[Written], kwargs: dict[str, Written], node: ast.Call) -> Written:
    """What a call of a known callee gives; calls of what no file at hand defines are kept. Raises Unknown."""
    where = ev.text.where(node)
    if isinstance(callee, Function):
        return call_function(callee, args, kwargs, where)
    name = label_of(callee)
    if name in _CONFIGURED and args and isinstance(args[0].value, (Name, LocalClass, Function)):
        callee, name, args = args[0].value, label_of(args[0].value), args[1:]
    elif isinstance(callee, Name) and name in KNOWN:
        return KNOWN[name](ev, args, kwargs, node)
    if isinstance(callee, LocalClass):
        written = _instance(ev, callee, args, kwargs, where)
    else:
        written = _foreign(name, args, kwargs, where)
    ev.reading.calls.append(written)
    return written


def made_by(ev: Evaluator, factory: Written) -> Written:
    """What a function or class gives that is called without arguments. Raises Unknown."""
    value = factory.value
    if isinstance(value, Function):
        return call_function(value, [], {}, factory.where)
    if isinstance(value, LocalClass):
        return _instance(ev, value, [], {}, factory.where)
    if isinstance(value, Name) and value.text in {"list", "dict", "tuple", "set"}:
        return Written({} if value.text == "dict" else [], factory.where)
    return _foreign(label_of(value), [], {}, factory.where)


def _arguments(ev: Evaluator, node: ast.Call, scope: Scope) -> tuple[list[Written], dict[str, Written]]:
    args: list[Written] = []
    for each in node.args:
        if isinstance(each, ast.Starred):
            args += ev.items(ev.of(each.value, scope))
        else:
            args.append(ev.of(each, scope))
    kwargs: dict[str, Written] = {}
    for keyword in node.keywords:
        written = ev.of(keyword.value, scope)
        if keyword.arg is not None:
            kwargs[keyword.arg] = written
        elif isinstance(written.value, dict):
            ev.reading.spend(len(written.value))
            kwargs |= {str(key): each for key, each in written.value.items()}
        else:
            why = f"{label_of(written.value)} is not known"
            kwargs[f"**{label_of(written.value)}"] = ev.unread(keyword.value, why)
    return args, kwargs


def _foreign(name: str, args: list[Written], kwargs: dict[str, Written], where: Location) -> Written:
    """A call of something that no file at hand defines, as data."""
    return Written(Thing(name, f"{_last(name)}(...)", where, tuple(args), dict(kwargs)), where)


def _instance(
    ev: Evaluator, made: LocalClass, args: list[Written], kwargs: dict[str, Written], where: Location
) -> Written:
    """An object of a class of the file: its fields have the defaults of the class, then what the call says."""
    ev.reading.spend(len(made.parts))
    memo: dict[int, object] = {}
    fields = {
        name: Written(copied(each.value, memo, ev.reading), each.where)
        for name, each in made.parts.items()
        if not isinstance(each.value, (Function, LocalClass))
    }
    by_place = dict(zip(made.fields, args, strict=False))
    parts = {**fields, **by_place, **kwargs}
    thing = Thing(made.name, f"{made.name}(...)", where, tuple(args[len(by_place) :]), parts, made.bases)
    return Written(thing, where)


def _method(
    ev: Evaluator, base: Written, name: str, args: list[Written], kwargs: dict[str, Written], node: ast.Call
) -> Written:
    value = base.value
    if isinstance(value, str):
        made = method_of_text(value, name, args, ev.reading)
        return ev.here([ev.here(each, node) for each in made] if isinstance(made, list) else made, node)
    if isinstance(value, list) and name in {"append", "extend", "insert"}:
        _grow(ev, value, name, args)
        return ev.here(None, node)
    if isinstance(value, dict):
        return _method_of_group(ev, base, name, args, kwargs, node)
    if name == "copy":
        return ev.here(copied(value, {}, ev.reading), node)
    raise Unknown(f"'{name}' of a list is not computed")


def _grow(ev: Evaluator, items: list[Written], name: str, args: list[Written]) -> None:
    if len(items) >= MAX_ITEMS:
        raise Unknown("it is too large")
    if name == "append":
        items.append(args[0])
    elif name == "insert":
        items.insert(ev.plain(args[0]), args[1])
    else:
        items += ev.items(args[0])[:MAX_ITEMS]


def _method_of_group(
    ev: Evaluator, base: Written, name: str, args: list[Written], kwargs: dict[str, Written], node: ast.Call
) -> Written:
    group: dict[object, Written] = base.value  # type: ignore[assignment]
    ev.reading.spend(len(group) if name not in {"get", "pop", "setdefault"} else 1)
    if name in {"get", "pop", "setdefault"}:
        return _item(group, name, ev.plain(args[0]), args[1] if len(args) > 1 else ev.here(None, node))
    if name == "update":
        given = args[0].value if args else {}
        if not isinstance(given, dict):
            raise Unknown(f"{label_of(given)} is not known")
        ev.reading.spend(len(given))
        group |= given
        group.update(kwargs.items())
        return ev.here(None, node)
    listed: dict[str, object] = {
        "keys": [Written(key, each.where) for key, each in group.items()],
        "values": list(group.values()),
        "items": [Written((Written(key, each.where), each), each.where) for key, each in group.items()],
        "copy": dict(group),
    }
    if name in listed:
        return ev.here(listed[name], node)
    if name in group and isinstance(group[name].value, (Function, Name)):
        return call_of(ev, group[name].value, args, kwargs, node)
    raise Unknown(f"'{name}' of a group is not computed")


def _item(group: dict[object, Written], method: str, key: object, default: Written) -> Written:
    if method == "setdefault":
        return group.setdefault(key, default)
    return group.pop(key, default) if method == "pop" else group.get(key, default)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


# Expressions of a Python file, computed from literals and known names; everything else is Unread.
#
# Nothing is executed: operators and a few functions of the language are computed on plain values within bounds.

_SHOWN = 200  # characters of an error that is told


class Evaluator:
    """Evaluates expressions of one file; its names are in `scope`."""

    def __init__(self, text: PythonText, reading: Reading, module: str = "") -> None:
        self.text, self.reading, self.module = text, reading, module
        self.imported: set[str] = set()  # dotted names of modules, of which only the first part is bound
        self.scope = Scope(prefix=f"{module}." if module else "")

    @property
    def package(self) -> str:
        """What relative imports of an opened module are relative to; empty for the file that is read itself."""
        is_package = self.text.name.endswith("__init__.py")
        return self.module.rstrip(".") if is_package else self.module.rpartition(".")[0]

    def of(self, node: ast.expr, scope: Scope) -> Written:
        """The value of an expression, with the place where it was first written. Raises Exhausted."""
        self.reading.spend()
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            return self.unread(node, "such an expression is not computed")
        try:
            return handler(self, node, scope)
        except Unknown as why:
            return self.unread(node, str(why))
        except ERRORS as error:
            return self.unread(node, f"it cannot be computed: {str(error)[:_SHOWN]}")

    def unread(self, node: ast.AST, why: str) -> Written:
        return Written(Unread(self.text.segment(node), why), self.text.where(node))

    def here(self, value: object, node: ast.AST) -> Written:
        """A value that an expression makes; its parts count as steps. Raises Unknown, Exhausted."""
        if isinstance(value, str):
            self.reading.spend(parts_of_text(value))
        elif isinstance(value, (list, tuple, dict)):
            self.reading.spend(len(value))
            if len(value) > MAX_ITEMS:
                raise Unknown("it is too large")
        return Written(value, self.text.where(node))

    def attribute(self, base: Written, node: ast.Attribute) -> Written:
        """An attribute of a value. Raises Unknown."""
        value = base.value
        if isinstance(value, Thing):
            return value.part(node.attr)
        if isinstance(value, Name):
            dotted = f"{value.text}.{node.attr}"
            if len(dotted) > MAX_NAME:
                raise Unknown("its name is too long")
            if dotted in self.imported:
                return self.settled(self.here(Deferred(value.text, node.attr), node), node)
            return self.here(Name(dotted), node)
        if isinstance(value, Imported):
            return self.settled(self.here(Deferred(value.name, node.attr), node), node)
        if isinstance(value, LocalClass):
            return value.parts.get(node.attr) or self.here(Name(f"{value.name}.{node.attr}"), node)
        if isinstance(value, dict) and node.attr in value:
            written: Written = value[node.attr]
            return written
        raise Unknown(value.why if isinstance(value, Unread) else f"{label_of(value)}.{node.attr} is not known")

    def settled(self, written: Written, node: ast.AST) -> Written:
        """What a name of another module stands for there, else its full name."""
        seen: set[str] = set()  # modules that import a name from each other
        while isinstance(value := written.value, Deferred):
            home = None if value.name in seen else self.reading.module(value.module)
            seen.add(value.name)
            found = home.scope.names.get(value.attribute) if home else None
            if found is None:
                around = self.reading.module(value.name)
                return self.here(Imported(value.name, around) if around else Name(value.name), node)
            written = found
        return written

    def items(self, written: Written) -> list[Written]:
        """The items that a loop goes over. Raises Unknown, Exhausted."""
        value = written.value
        self.reading.spend(len(value) if isinstance(value, (list, tuple, dict, str)) else 0)
        if isinstance(value, (list, tuple)):
            return list(value)
        if isinstance(value, dict):
            return [Written(key, each.where) for key, each in value.items()]
        if isinstance(value, str) and len(value) <= MAX_ITEMS:
            return [Written(sign, written.where) for sign in value]
        raise Unknown(f"{label_of(value)} is not known")

    def defaults(self, args: ast.arguments, scope: Scope) -> dict[str, Written]:
        """Default values of parameters by name."""
        places = [each.arg for each in (*args.posonlyargs, *args.args)]
        found = dict(zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True))
        found |= {each.arg: value for each, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
        return {name: self.of(each, scope) for name, each in found.items()}

    def plain(self, written: Written) -> Any:
        """A value of literals alone as Python has it. Raises Unknown, Exhausted."""
        return plain(written.value, self.reading)

    def made_by(self, factory: Written) -> Written:
        """What a function or class gives that is called without arguments."""
        return made_by(self, factory)


def _constant(ev: Evaluator, node: ast.Constant, scope: Scope) -> Written:
    if isinstance(node.value, (bytes, complex)) or node.value is ...:
        return ev.unread(node, "it is no plain value")
    return ev.here(node.value, node)


def _name(ev: Evaluator, node: ast.Name, scope: Scope) -> Written:
    written = scope.find(node.id)
    return ev.settled(written, node) if written else ev.here(Name(node.id), node)


def _attribute(ev: Evaluator, node: ast.Attribute, scope: Scope) -> Written:
    return ev.attribute(ev.of(node.value, scope), node)


def _subscript(ev: Evaluator, node: ast.Subscript, scope: Scope) -> Written:
    value = ev.of(node.value, scope).value
    if isinstance(node.slice, ast.Slice):
        bounds = [ev.plain(ev.of(each, scope)) if each else None for each in _bounds(node.slice)]
        if isinstance(value, (str, list, tuple)):
            return ev.here(value[slice(*bounds)], node)
        raise Unknown(f"{label_of(value)} is not known")
    key = ev.plain(ev.of(node.slice, scope))
    if isinstance(value, (list, tuple, dict)):
        written: Written = value[key]
        return written
    if isinstance(value, str):
        return ev.here(value[key], node)
    if isinstance(value, Thing):
        return value.part(str(key) if isinstance(key, str) else f"[{key}]")
    if isinstance(value, Name):
        name = f"{value.text}[{key}]"
        if len(name) <= MAX_NAME:
            return ev.here(Name(name), node)
    raise Unknown(f"{label_of(value)} is not known")


def _bounds(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step


def _sequence(ev: Evaluator, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Written:
    items: list[Written] = []
    for each in node.elts:
        if isinstance(each, ast.Starred):
            items += ev.items(ev.of(each.value, scope))
        else:
            items.append(ev.of(each, scope))
    return ev.here(tuple(items) if isinstance(node, ast.Tuple) else items, node)


def _dict(ev: Evaluator, node: ast.Dict, scope: Scope) -> Written:
    group: dict[object, Written] = {}
    for key, each in zip(node.keys, node.values, strict=True):
        value = ev.of(each, scope)
        if key is not None:
            group[key_of(ev, ev.of(key, scope))] = value
        elif isinstance(value.value, dict):
            ev.reading.spend(len(value.value))
            group |= value.value
        else:
            group[f"**{label_of(value.value)}"] = ev.unread(each, f"{label_of(value.value)} is not known")
    return ev.here(group, node)


def key_of(ev: Evaluator, key: Written) -> object:
    """The key of a group: plain, or else the text of what it is. Raises Unknown, Exhausted."""
    return key.value.text if isinstance(key.value, (Name, Unread)) else ev.plain(key)


def _binary(ev: Evaluator, node: ast.BinOp, scope: Scope) -> Written:
    left, right = ev.of(node.left, scope).value, ev.of(node.right, scope).value
    return ev.here(arithmetic(node.op, left, right, ev.reading), node)


def _unary(ev: Evaluator, node: ast.UnaryOp, scope: Scope) -> Written:
    return ev.here(unary(node.op, ev.of(node.operand, scope).value, ev.reading), node)


def _either(ev: Evaluator, node: ast.BoolOp, scope: Scope) -> Written:
    wanted = isinstance(node.op, ast.Or)
    for each in node.values[:-1]:
        written = ev.of(each, scope)
        if truth(written.value) is wanted:
            return written
    return ev.of(node.values[-1], scope)


def _comparison(ev: Evaluator, node: ast.Compare, scope: Scope) -> Written:
    left = ev.of(node.left, scope).value
    for kind, each in zip(node.ops, node.comparators, strict=True):
        right = ev.of(each, scope).value
        if not compared(kind, left, right, ev.reading):
            return ev.here(False, node)
        left = right
    return ev.here(True, node)


def _conditional(ev: Evaluator, node: ast.IfExp, scope: Scope) -> Written:
    return ev.of(node.body if truth(ev.of(node.test, scope).value) else node.orelse, scope)


def _joined(ev: Evaluator, node: ast.JoinedStr, scope: Scope) -> Written:
    parts = []
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            spec = str(ev.plain(ev.of(each.format_spec, scope))) if each.format_spec else ""
            parts.append(formatted(ev.of(each.value, scope).value, spec, each.conversion, ev.reading))
        else:
            parts.append(str(ev.plain(ev.of(each, scope))))
    if sum(map(len, parts)) > MAX_ITEMS:
        raise Unknown("it is too large")
    return ev.here("".join(parts), node)


def _lambda(ev: Evaluator, node: ast.Lambda, scope: Scope) -> Written:
    return ev.here(Function(node, scope, ev.defaults(node.args, scope), ev), node)


def _list_of(ev: Evaluator, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Written:
    return ev.here([ev.of(node.elt, inner) for inner in _rounds(ev, node.generators, scope)], node)


def _dict_of(ev: Evaluator, node: ast.DictComp, scope: Scope) -> Written:
    rounds = _rounds(ev, node.generators, scope)
    return ev.here({key_of(ev, ev.of(node.key, inner)): ev.of(node.value, inner) for inner in rounds}, node)


def _rounds(ev: Evaluator, loops: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
    """The names of each round of a comprehension. Raises Unknown."""
    if not loops:
        yield scope
        return
    for item in ev.items(ev.of(loops[0].iter, scope)):
        inner = Scope(scope)
        unpack(loops[0].target, item, inner)
        if all(truth(ev.of(test, inner).value) for test in loops[0].ifs):
            yield from _rounds(ev, loops[1:], inner)


def unpack(target: ast.expr, item: Written, scope: Scope) -> None:
    """Give names to a value or to its parts. Raises Unknown: it has no such parts."""
    if isinstance(target, ast.Name):
        scope.names[target.id] = item
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each, part in zip(target.elts, parts_of(item, len(target.elts)), strict=True):
            unpack(each, part, scope)


def parts_of(item: Written, count: int) -> list[Written]:
    """The parts of a value that is unpacked; of something foreign each is a thing of its own. Raises Unknown."""
    value = item.value
    if isinstance(value, (list, tuple)) and len(value) == count:
        return list(value)
    if isinstance(value, Thing):
        return [value.part(f"[{place}]") for place in range(count)]
    raise Unknown(f"{label_of(value)} is not {count} values")


_EXPRESSIONS: Mapping[type[ast.expr], Callable[..., Written]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript,
    ast.List: _sequence, ast.Tuple: _sequence, ast.Set: _sequence, ast.Dict: _dict, ast.BinOp: _binary,
    ast.UnaryOp: _unary, ast.BoolOp: _either, ast.Compare: _comparison, ast.IfExp: _conditional,
    ast.JoinedStr: _joined, ast.Lambda: _lambda, ast.ListComp: _list_of,
    ast.SetComp: _list_of, ast.GeneratorExp: _list_of, ast.DictComp: _dict_of, ast.Call: called,
}  # fmt: skip


# Imports: names get what a file at hand defines, else their full dotted names. Nothing is imported.


def import_names(ev: Evaluator, node: ast.Import, scope: Scope) -> None:
    """`import a.b` and `import a.b as c`."""
    for each in node.names:
        if len(each.name) > MAX_NAME:
            continue
        around, _, last = each.name.rpartition(".")
        first = each.name.partition(".")[0]
        if each.asname:
            scope.names[each.asname] = ev.here(Deferred(around, last) if around else Name(first), node)
        else:
            scope.names[first] = ev.here(Name(first), node)
            ev.imported.update(accumulate(each.name.split("."), "{}.{}".format))


def import_from(ev: Evaluator, node: ast.ImportFrom, scope: Scope) -> None:
    """`from a.b import c, d as e`, also relative to the package of the file, and with a star."""
    module = _absolute(ev, node)
    if len(module) > MAX_NAME:
        return
    for each in node.names:
        if each.name != "*":
            scope.names[each.asname or each.name] = ev.here(Deferred(module, each.name), node)
        elif home := ev.reading.module(module):
            ev.reading.spend(len(home.scope.names))
            scope.names |= {name: value for name, value in home.scope.names.items() if not name.startswith("_")}


def _absolute(ev: Evaluator, node: ast.ImportFrom) -> str:
    """The module that names come from; one that is relative to the file that is read stays so."""
    module = node.module or ""
    if not node.level or not ev.module:
        return "." * node.level + module
    parts = ev.package.split(".")
    around = parts[: len(parts) - node.level + 1]
    return ".".join([*around, module] if module else around) or "."


# Statements of a Python file: assignments, conditions on known values, bounded loops, definitions and imports.
#
# What depends on a condition that is not known becomes Unread; no branch is guessed.

_MAX_ROUNDS = 1000


class Jump(Exception):  # noqa: N818
    """The statements that follow are not reached: `return`, `raise`, `break` or `continue`."""


class Returned(Jump):
    """A function has returned."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written


class Raised(Jump):
    """The file raises an error here."""


class _LoopEnded(Jump):
    """`break`."""


class _RoundEnded(Jump):
    """`continue`."""


def run(ev: Evaluator, body: list[ast.stmt], scope: Scope) -> None:
    """Evaluate statements. Raises Jump, Exhausted."""
    for node in body:
        ev.reading.spend()
        handler = _STATEMENTS.get(type(node))
        if handler is not None:
            handler(ev, node, scope)
        else:
            _in_doubt(ev, [node], scope, "it is set by a statement that is not evaluated")


def _return(ev: Evaluator, node: ast.Return, scope: Scope) -> None:
    raise Returned(ev.of(node.value, scope) if node.value else ev.here(None, node))


def _raise(ev: Evaluator, node: ast.Raise, scope: Scope) -> None:
    raise Raised(ev.text.segment(node.exc) if node.exc else "an error")


def _break(ev: Evaluator, node: ast.Break, scope: Scope) -> None:
    raise _LoopEnded


def _continue(ev: Evaluator, node: ast.Continue, scope: Scope) -> None:
    raise _RoundEnded


def _assign(ev: Evaluator, node: ast.Assign, scope: Scope) -> None:
    written = ev.of(node.value, scope)
    for target in node.targets:
        assign(ev, target, written, scope)


def _annotated(ev: Evaluator, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        assign(ev, node.target, ev.of(node.value, scope), scope)


def _augmented(ev: Evaluator, node: ast.AugAssign, scope: Scope) -> None:
    assign(ev, node.target, ev.of(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node), scope), scope)


def assign(ev: Evaluator, target: ast.expr, written: Written, scope: Scope) -> None:
    """Give a value to a name, an attribute, an item, or to several."""
    if isinstance(target, ast.Name):
        scope.owner(target.id).names[target.id] = _given(ev, target.id, scope) or written
    elif isinstance(target, ast.Attribute):
        _set(ev.of(target.value, scope).value, target.attr, written)
    elif isinstance(target, ast.Subscript):
        try:
            key = ev.plain(ev.of(target.slice, scope))
        except Unknown:
            return
        _set(ev.of(target.value, scope).value, key, written)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for place, (each, part) in enumerate(zip(target.elts, _parts(ev, written, target), strict=True)):
            assign(ev, each, part or ev.unread(target, f"value {place + 1} of it is not known"), scope)
    elif isinstance(target, ast.Starred):
        assign(ev, target.value, written, scope)


def _set(owner: object, key: object, written: Written) -> None:
    if isinstance(owner, (Thing, LocalClass)):
        owner.parts[str(key)] = written
    elif isinstance(owner, list):
        if isinstance(key, int) and -len(owner) <= key < len(owner):
            owner[key] = written
    elif isinstance(owner, dict):
        owner[key] = written


def _parts(ev: Evaluator, written: Written, target: ast.Tuple | ast.List) -> list[Written | None]:
    """The values that several targets get; None where one is not known."""
    value, count = written.value, len(target.elts)
    starred = next((place for place, each in enumerate(target.elts) if isinstance(each, ast.Starred)), None)
    if isinstance(value, (list, tuple)) and starred is not None and len(value) >= count - 1:
        ev.reading.spend(len(value))
        after = count - starred - 1
        middle = Written(list(value[starred : len(value) - after]), written.where)
        return [*value[:starred], middle, *value[len(value) - after :]]
    if isinstance(value, (list, tuple)) and len(value) == count:
        return list(value)
    if isinstance(value, Thing):
        return [value.part(f"[{place}]") for place in range(count)]
    return [None] * count


def _given(ev: Evaluator, name: str, scope: Scope) -> Written | None:
    """What was passed for a variable of the file."""
    if name in ev.reading.given and scope.around is None:
        return Written(foreign_scalar(ev.reading.given[name]), Location(f"--set {name}"))
    return None


def _expression(ev: Evaluator, node: ast.Expr, scope: Scope) -> None:
    if not isinstance(node.value, ast.Call):
        return
    written = ev.of(node.value, scope)
    if isinstance(written.value, Thing) and written.value.name:
        for each in (*written.value.args, *written.value.parts.values()):
            if isinstance(each.value, Thing) and each.value is not written.value:
                each.value.passed_to.append(Written(Name(written.value.name), written.where))


def _if(ev: Evaluator, node: ast.If, scope: Scope) -> None:
    try:
        holds = truth(ev.of(node.test, scope).value)
    except Unknown:
        _in_doubt(ev, [*node.body, *node.orelse], scope, f"it depends on '{ev.text.segment(node.test)}'")
    else:
        run(ev, node.body if holds else node.orelse, scope)


def _in_doubt(ev: Evaluator, body: list[ast.stmt], scope: Scope, why: str) -> None:
    """What these statements may set is not known any more, nor what the function returns if they may return."""
    for node in _own_nodes(body):
        ev.reading.spend()
        if isinstance(node, ast.Return):
            scope.doubt = why
        for target in _targets(node):
            assign(ev, target, ev.unread(target, why), scope)


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes of statements, without those of functions and classes inside."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            left += ast.iter_child_nodes(node)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, (ast.AugAssign, ast.For)) or (isinstance(node, ast.AnnAssign) and node.value):
        return [node.target]
    return []


def _for(ev: Evaluator, node: ast.For, scope: Scope) -> None:
    try:
        items = ev.items(ev.of(node.iter, scope))
    except Unknown as why:
        items = []
        _in_doubt(ev, [node], scope, str(why))
    if len(items) > _MAX_ROUNDS:
        _in_doubt(ev, [node], scope, f"it is set in a loop of more than {_MAX_ROUNDS} rounds")
        return
    try:
        for item in items:
            assign(ev, node.target, item, scope)
            _round(ev, node.body, scope)
    except _LoopEnded:
        return
    run(ev, node.orelse, scope)


def _round(ev: Evaluator, body: list[ast.stmt], scope: Scope) -> None:
    try:
        run(ev, body, scope)
    except _RoundEnded:
        return


def _with(ev: Evaluator, node: ast.With, scope: Scope) -> None:
    for item in node.items:
        written = ev.of(item.context_expr, scope)
        if item.optional_vars is not None:
            assign(ev, item.optional_vars, written, scope)
    run(ev, node.body, scope)


def _try(ev: Evaluator, node: ast.Try, scope: Scope) -> None:
    run(ev, node.body, scope)
    run(ev, node.orelse, scope)
    run(ev, node.finalbody, scope)


def _function(ev: Evaluator, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    if not is_cell(node):
        define_function(ev, node, scope)
        return
    try:
        run(ev, node.body, scope)
    except Jump:
        return


def _class(ev: Evaluator, node: ast.ClassDef, scope: Scope) -> None:
    define_class(ev, node, scope, run)


def _global(ev: Evaluator, node: ast.Global, scope: Scope) -> None:
    scope.elsewhere.update(node.names)


def _nothing(ev: Evaluator, node: ast.stmt, scope: Scope) -> None:
    """Statements that set nothing."""


_STATEMENTS: Mapping[type[ast.stmt], Callable[..., None]] = {
    ast.Return: _return, ast.Raise: _raise, ast.Break: _break, ast.Continue: _continue, ast.Assign: _assign,
    ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.Expr: _expression, ast.If: _if, ast.For: _for,
    ast.With: _with, ast.Try: _try, ast.FunctionDef: _function, ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class, ast.Import: import_names, ast.ImportFrom: import_from, ast.Pass: _nothing,
    ast.Assert: _nothing, ast.Global: _global, ast.Nonlocal: _nothing, ast.Delete: _nothing,
}  # fmt: skip


# A Python file as data: its names, its calls, and what its functions return as configurations.

if TYPE_CHECKING:
    FindModule = Callable[[str], tuple[str, str] | None]
_STOPPED = (Jump, Exhausted, RecursionError)


def read_python(text: str, name: str, given: Mapping[str, str] | None = None, find: FindModule | None = None) -> Module:
    """Read a Python file or notebook without executing any of it.

    given : values of variables of the file and of the environment; they win over what the file says
    find : text and file name of a module by its dotted name, or None where its file is not at hand

    Raises
    ------
    InputError    no valid Python, or more than MAX_CHARACTERS
    """
    reading = Reading(given or {}, lambda module, around: _opened(module, around, find))
    evaluator = _evaluated(PythonText(text, name), reading, "")
    return Module(evaluator)


def _opened(module: str, reading: Reading, find: FindModule | None) -> Evaluator | None:
    """A module whose file is at hand and is valid Python."""
    found = find(module) if find else None
    if found is None:
        return None
    reading.characters -= len(found[0])
    if reading.characters < 0:
        return None
    try:
        text = PythonText(*found)
    except InputError:
        return None
    calls, steps = len(reading.calls), reading.steps
    reading.start()
    evaluator = _evaluated(text, reading, module)
    reading.steps = steps
    del reading.calls[calls:]
    return evaluator


def _evaluated(text: PythonText, reading: Reading, module: str) -> Evaluator:
    evaluator = Evaluator(text, reading, module)
    evaluator.scope.names["__name__"] = Written(module or "__main__", Location(text.name))
    for node in text.body:
        try:
            run(evaluator, [node], evaluator.scope)
        except Exhausted:
            text.notes.append(Problem("from here on the file is not evaluated: it takes too long", text.where(node)))
            break
        except (Jump, RecursionError):
            continue
    return evaluator


class Module:
    """What a file says.

    name : its path
    notes : what could not be read
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._reading = evaluator.reading
        self._met = tuple(evaluator.reading.calls)
        self.name = evaluator.text.name
        self.notes: tuple[Problem, ...] = tuple(evaluator.text.notes)

    @cached_property
    def names(self) -> Mapping[str, Written]:
        """Values of the module's variables, without functions, classes and what it imports."""
        freezer = Freezer(self._reading)
        names = self._evaluator.scope.names
        return {name: freezer.written(each) for name, each in names.items() if _is_data(name, each.value)}

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Calls of what no file at hand defines, as the file makes them when it is started, in this order."""
        freezer = Freezer(self._reading)
        return tuple([freezer.call(each.value) for each in self._met if isinstance(each.value, Thing)])

    @cached_property
    def entries(self) -> Mapping[str, Written]:
        """What the functions of the file return that give a configuration, called with their defaults.

        Functions whose names begin with `_` are for the others.
        """
        public = [name for name in self._functions if not name.startswith("_")]
        found = {name: self.entry(name) for name in public}
        return {name: each for name, each in found.items() if _is_configuration(each.value)}

    def entry(self, name: str, given: Mapping[str, str] | None = None) -> Written:
        """What a function of the file returns, with values for some of its parameters.

        Raises
        ------
        InputError    the file has no such function, or the function no such parameter
        """
        functions = self._functions
        if name not in functions:
            hint = did_you_mean(name, functions)
            raise InputError(Problem(f"the file has no function '{name}'", Location(self.name), hint))
        kwargs = {key: Written(foreign_scalar(text), Location(f"--set {key}")) for key, text in (given or {}).items()}
        function = functions[name]
        where = function.home.text.where(function.node)
        self._reading.start()
        self._reading.depth = 0
        try:
            return Freezer(self._reading).written(call_function(function, [], kwargs, where))
        except _STOPPED:
            return Written(Unread(f"{name}()", "it takes too long to evaluate"), where)

    def parameters(self, name: str) -> tuple[str, ...]:
        """Names of the parameters of a function of the file; none where it has no such function."""
        function = self._functions.get(name)
        args = function.node.args if function else None
        return tuple([each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]) if args else ()

    @cached_property
    def _functions(self) -> dict[str, Function]:
        names = self._evaluator.scope.names
        own = {name: each.value for name, each in names.items() if isinstance(each.value, Function)}
        return {name: each for name, each in own.items() if each.home is self._evaluator}


def _is_configuration(value: object) -> bool:
    return bool(value.name) if isinstance(value, Call) else isinstance(value, dict)


def _is_data(name: str, value: object) -> bool:
    """Whether a name of the module is a variable, and no import."""
    if isinstance(value, Name):
        return value.text != name
    return name != "__name__" and isinstance(value, (*Plain, list, tuple, dict, Thing, Unread))


# Functions of the language and of its library that are computed, since configurations use them.

Args = list[Written]
Kwargs = dict[str, Written]
Known = Callable[["Evaluator", Args, Kwargs, ast.Call], Written]


def _rounded(number: float, digits: int | None = None) -> float:
    """`round`, which for -1e9 digits of an integer makes a number of a billion digits."""
    return round(number, None if digits is None else max(digits, -400))


_COMPUTED: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "abs": abs, "round": _rounded, "min": min, "max": max,
    "sum": sum, "sorted": sorted, "any": any, "all": all, "math.ceil": lambda x: -int(-x // 1),
    "math.floor": lambda x: int(x // 1), "divmod": divmod,
}  # fmt: skip
"""Functions of plain values alone."""


def _computed(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    name = ast.unparse(node.func)
    function = _COMPUTED.get(name) or _COMPUTED[f"math.{name}"]
    given = {key: ev.plain(each) for key, each in kwargs.items()}
    made = function(*[ev.plain(each) for each in args], **given)
    return _written(ev, made, node)


def _written(ev: Evaluator, value: object, node: ast.Call) -> Written:
    if isinstance(value, (list, tuple)):
        value = [_written(ev, each, node) for each in value]
    return ev.here(value, node)


def _length(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    value = args[0].value
    if not isinstance(value, (str, list, tuple, dict)):
        raise Unknown(f"{label_of(value)} is not known")
    return ev.here(len(value), node)


def _range(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    numbers = range(*[ev.plain(each) for each in args])
    if len(numbers) > MAX_ITEMS:
        raise Unknown("it is too large")
    return ev.here([ev.here(each, node) for each in numbers], node)


def _listed(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    return ev.here(ev.items(args[0]) if args else [], node)


def _tuple(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    return ev.here(tuple(ev.items(args[0])) if args else (), node)


def _group(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    given = args[0].value if args else {}
    if not isinstance(given, dict):
        raise Unknown(f"{label_of(given)} is not known")
    ev.reading.spend(len(given))
    return ev.here({**given, **kwargs}, node)


def _zip(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    rows = zip(*[ev.items(each) for each in args], strict=False)
    return ev.here([ev.here(row, node) for row in rows], node)


def _enumerate(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    start = ev.plain(args[1]) if len(args) > 1 else 0
    items = enumerate(ev.items(args[0]), start)
    return ev.here([ev.here((ev.here(place, node), each), node) for place, each in items], node)


def _known_attribute(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """`getattr`: of something foreign only what the file has set is known."""
    owner, name = args[0].value, ev.plain(args[1])
    if isinstance(owner, Thing):
        return owner.part(str(name))
    if isinstance(owner, dict):
        return owner.get(name) or args[2]
    raise Unknown(f"{label_of(owner)} is not known")


def _has_attribute(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    owner, name = args[0].value, ev.plain(args[1])
    part = owner.parts.get(str(name)) if isinstance(owner, Thing) else None
    if part is not None and not (isinstance(part.value, Thing) and part.value.is_blank):
        return ev.here(True, node)
    raise Unknown(f"{label_of(owner)} is not known")


def _copy(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """`copy` and `deepcopy`, and `replace` with its changes."""
    value = copied(args[0].value, {}, ev.reading)
    if isinstance(value, Thing):
        value.parts |= kwargs
    elif kwargs:
        raise Unknown(f"{label_of(value)} is not known")
    return Written(value, args[0].where)


def _second(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    return args[1]


def _environment(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """A variable of the environment: what was passed, else what the file takes where it is not set."""
    name = ev.plain(args[0])
    if name in ev.reading.given:
        return Written(ev.reading.given[name], Location(f"--set {name}"))
    default = args[1] if len(args) > 1 else kwargs.get("default")
    if default is None:
        raise Unknown(f"${name} is not known")
    return default


KNOWN: Mapping[str, Known] = {
    **dict.fromkeys(_COMPUTED, _computed),
    "len": _length, "range": _range, "list": _listed, "set": _listed, "frozenset": _listed, "tuple": _tuple,
    "dict": _group, "zip": _zip, "enumerate": _enumerate, "getattr": _known_attribute,
    "hasattr": _has_attribute, "dataclasses.replace": _copy, "copy.copy": _copy, "copy.deepcopy": _copy,
    "typing.cast": _second, "reversed": lambda ev, args, kwargs, node: ev.here(
        ev.items(args[0])[::-1], node
    ),
    "os.environ.get": _environment, "os.getenv": _environment,
}  # fmt: skip
"""Functions by their full names, with imports resolved."""


def _add_argument(owner: Thing, args: Args, kwargs: Kwargs, where: Location) -> Written:
    """An option of a command line: its default is what a file says of it."""
    names = [each.value for each in args if isinstance(each.value, str)]
    name = next((each for each in names if each.startswith("--")), names[0] if names else "")
    target = kwargs["dest"].value if "dest" in kwargs else name.lstrip("-").replace("-", "_")
    action = kwargs["action"].value if "action" in kwargs else None
    implied = {"store_true": False, "store_false": True}.get(str(action))
    default = kwargs.get("default", Written(implied, where))
    given = kwargs.get("type")
    if isinstance(default.value, str) and given is not None and label_of(given.value) in {"int", "float"}:
        default = Written(foreign_scalar(default.value), default.where)
    owner.parts[str(target)] = default
    return Written(None, where)


def _same_parser(owner: Thing, args: Args, kwargs: Kwargs, where: Location) -> Written:
    return Written(owner, where)


def _parsed(owner: Thing, args: Args, kwargs: Kwargs, where: Location) -> Written:
    parts = {name: each for name, each in owner.parts.items() if not (isinstance(each.value, Thing))}
    return Written(Thing("argparse.Namespace", "args", where, parts=parts), where)


def _parsed_and_rest(owner: Thing, args: Args, kwargs: Kwargs, where: Location) -> Written:
    return Written((_parsed(owner, args, kwargs, where), Written([], where)), where)


METHODS: Mapping[tuple[str, str], Callable[[Thing, Args, Kwargs, Location], Written]] = {
    ("ArgumentParser", "add_argument"): _add_argument,
    ("ArgumentParser", "add_argument_group"): _same_parser,
    ("ArgumentParser", "add_mutually_exclusive_group"): _same_parser,
    ("ArgumentParser", "parse_args"): _parsed,
    ("ArgumentParser", "parse_known_args"): _parsed_and_rest,
}
"""Methods by the class and their name."""
