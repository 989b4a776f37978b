"""Python that launch scripts consist of, evaluated without running it: what is not known stays unknown."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.interop.readers.python_values import Call, Name, PythonText
from xe_sizer.interop.values import Unread, Written
from xe_sizer.profiles.text import STDIN, foreign_scalar, name_of, read_text

# Python files and notebooks of others: read as syntax trees, evaluated as data, never executed or imported. What no
# configuration needs (loops that are left early, slices, formats) gives a value that is not known, with its place.

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


# Objects while a file is read: they change by assignments, and are data once it has been read.

MAX_STEPS = 100_000  # expressions and statements that are evaluated for one value, and parts of what they make
MAX_STEPS_OF_ALL = 1_000_000  # the same, for everything that a file is asked for
MAX_DEPTH = 20  # calls inside calls
MAX_MODULES = 50
MAX_CHARACTERS_OF_MODULES = 1_000_000  # all together
MAX_ITEMS = 10_000  # of a list or text that is computed, and parts of a value with everything in it
MAX_PARTS = 50_000  # of a value with everything in it, each as often as levels are around it
MAX_NAME = 500  # characters of a name with all its dots
_MAX_LEVELS = 50  # of values in values
_MOST_NAMES = 1000  # of modules that are looked for
_MAX_ROUNDS = 1000  # of a loop
_MAX_BITS = 256
_CHARACTERS = 100  # of a text that count as one part
_SHOWN = 200  # characters of an error that is told
_ERRORS = (ArithmeticError, TypeError, ValueError, AttributeError, LookupError)
Plain = (type(None), bool, int, float, str)


class Unknown(Exception):  # noqa: N818
    """A value that is not known, or not computed; says why."""


class Exhausted(Exception):  # noqa: N818
    """More steps than a configuration takes."""


class Jump(Exception):  # noqa: N818
    """The statements that follow are not reached: `return` with its value, or `raise`."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written


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
    doubt: str | None = None  # why it is not known what a function returns

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

    def module(self, name: str) -> Evaluator | None:
        """A module by its dotted name, opened once; None where its file is not at hand, or is being opened."""
        opened = sum(each is not None for each in self._modules.values())
        if name not in self._modules and opened < MAX_MODULES and len(self._modules) < _MOST_NAMES:
            self._modules[name] = None
            self._modules[name] = self._opened(name, self)
        return self._modules.get(name)

    def plain(self, value: object, end: int | None = None) -> Any:
        """A value of literals alone as Python has it; a part that is shared counts each time it is met.

        end : steps that must be left for its parts; it has at most MAX_ITEMS

        Raises Unknown: something in it is not known, or it is too large; and Exhausted.
        """
        end = self.steps - MAX_ITEMS if end is None else end
        self.spend(1 + len(value) // _CHARACTERS if isinstance(value, str) else 1)
        if self.steps < end:
            raise Unknown("it is too large")
        if isinstance(value, Plain):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)([self.plain(each.value, end) for each in value])
        if isinstance(value, dict):
            return {key: self.plain(each.value, end) for key, each in value.items()}
        raise Unknown(f"{describe(value)} is not known")

    def copied(self, value: object, memo: dict[int, object]) -> object:
        """A copy of a value with all its parts; what is shared in it is shared in the copy. Raises Exhausted."""
        if id(value) in memo or not isinstance(value, (Thing, list, tuple, dict)):
            return memo.get(id(value), value)
        self.spend(1 + len(value.parts if isinstance(value, Thing) else value))

        def again(written: Written) -> Written:
            return Written(self.copied(written.value, memo), written.where)

        if isinstance(value, Thing):
            thing = Thing(value.name, value.label, value.where, bases=value.bases, made_by=list(value.made_by))
            memo[id(value)] = thing
            thing.args = tuple([again(each) for each in value.args])
            thing.parts.update({name: again(each) for name, each in value.parts.items()})
        elif isinstance(value, dict):
            group: dict[object, Written] = {}
            memo[id(value)] = group
            group.update({key: again(each) for key, each in value.items()})
        else:
            items: list[Written] = []
            memo[id(value)] = items
            items += [again(each) for each in value]
            memo[id(value)] = tuple(items) if isinstance(value, tuple) else items
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
            if isinstance(value, Thing):
                return self.call(value)
            if isinstance(value, Mapping):
                return {str(key)[:MAX_NAME]: self.written(each) for key, each in value.items()}
            if isinstance(value, (list, tuple)):
                return tuple([self.written(each) for each in value])
            return Unread(type(value).__name__, "it is no configuration")
        finally:
            self.inside.discard(id(value))

    def _said_of(self, thing: Thing) -> dict[str, Written]:
        if id(thing) not in self._said:
            self._said[id(thing)] = thing.said
        return self._said[id(thing)]

    def _count(self, parts: int) -> None:
        self.left -= parts
        self.reading.of_all -= parts

    def call(self, thing: Thing) -> Call:
        self._count(len(thing.made_by))
        args = tuple([self.written(each) for each in thing.args])
        kwargs = {name: self.written(each) for name, each in self._said_of(thing).items()}
        return Call(thing.name, args, kwargs, thing.where, thing.bases, tuple(thing.made_by))


def describe(value: object) -> str:
    """How messages call a value."""
    label = value.label if isinstance(value, Thing) else getattr(value, "text", None) or getattr(value, "name", "it")
    return str(label)


def truth(value: object) -> bool:
    """Whether a value counts as true. Raises Unknown: that is not known."""
    if isinstance(value, (list, tuple, dict, *Plain)):
        return bool(value)
    if isinstance(value, (Function, LocalClass)):
        return True
    raise Unknown(f"{describe(value)} is not known")


# Expressions and statements, computed from literals and known names; everything else is Unread.
#
# Nothing is executed: operators and a few functions of the language are computed on plain values within bounds. What
# depends on a condition that is not known becomes Unread; no branch is guessed.

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
}  # fmt: skip
_COMPARISON: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda item, group: item in group, ast.NotIn: lambda item, group: item not in group,
}  # fmt: skip
_TEXT_METHODS = frozenset({
    "lower", "upper", "strip", "split", "startswith", "endswith", "removeprefix", "removesuffix", "replace", "join",
    "find", "count", "format",
})  # fmt: skip
_CONFIGURED = frozenset({"nemo_run.Config", "nemo_run.Partial", "functools.partial", "fiddle.Config", "fiddle.Partial"})
"""Calls that only write down a call of their first argument."""
Args = list[Written]
Kwargs = dict[str, Written]


class Evaluator:
    """Evaluates expressions and statements of one file; its names are in `scope`."""

    def __init__(self, text: PythonText, reading: Reading, module: str = "") -> None:
        self.text, self.reading, self.module = text, reading, module
        self.imported: set[str] = set()  # dotted names of modules, of which only the first part is bound
        self.scope = Scope(prefix=f"{module}." if module else "")

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
        except _ERRORS as error:
            return self.unread(node, f"it cannot be computed: {str(error)[:_SHOWN]}")

    def unread(self, node: ast.AST, why: str) -> Written:
        return Written(Unread(self.text.segment(node), why), self.text.where(node))

    def here(self, value: object, node: ast.AST) -> Written:
        """A value that an expression makes; its parts count as steps. Raises Unknown, Exhausted."""
        if isinstance(value, str):
            self.reading.spend(1 + len(value) // _CHARACTERS)
        elif isinstance(value, (list, tuple, dict)):
            self.reading.spend(len(value))
        if (
            isinstance(value, (str, list, tuple, dict))
            and len(value) > MAX_ITEMS
            and not isinstance(node, ast.Constant)
        ):
            raise Unknown("it is too large")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise Unknown("it is too large")
        return Written(value, self.text.where(node))

    def plain(self, written: Written) -> Any:
        """A value of literals alone as Python has it. Raises Unknown, Exhausted."""
        return self.reading.plain(written.value)

    def items(self, written: Written) -> list[Written]:
        """The items that a loop goes over. Raises Unknown, Exhausted."""
        value = written.value
        self.reading.spend(len(value) if isinstance(value, (list, tuple, dict)) else 0)
        if isinstance(value, (list, tuple)):
            return list(value)
        if isinstance(value, dict):
            return [Written(key, each.where) for key, each in value.items()]
        raise Unknown(f"{describe(value)} is not known")

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
                return self._settled(self.here(Deferred(value.text, node.attr), node), node)
            return self.here(Name(dotted), node)
        if isinstance(value, Imported):
            return self._settled(self.here(Deferred(value.name, node.attr), node), node)
        if isinstance(value, LocalClass):
            return value.parts.get(node.attr) or self.here(Name(f"{value.name}.{node.attr}"), node)
        raise Unknown(value.why if isinstance(value, Unread) else f"{describe(value)}.{node.attr} is not known")

    def _settled(self, written: Written, node: ast.AST) -> Written:
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

    # Expressions.

    def _constant(self, node: ast.Constant, scope: Scope) -> Written:
        known = isinstance(node.value, Plain)
        return self.here(node.value, node) if known else self.unread(node, "it is no plain value")

    def _name(self, node: ast.Name, scope: Scope) -> Written:
        written = scope.find(node.id)
        return self._settled(written, node) if written else self.here(Name(node.id), node)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Written:
        return self.attribute(self.of(node.value, scope), node)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Written:
        value = self.of(node.value, scope).value
        key = self.plain(self.of(node.slice, scope))
        if isinstance(value, (list, tuple, dict)):
            written: Written = value[key]
            return written
        if isinstance(value, str):
            return self.here(value[key], node)
        if isinstance(value, Thing):
            return value.part(str(key) if isinstance(key, str) else f"[{key}]")
        if isinstance(value, Name) and len(value.text) + len(str(key)) < MAX_NAME:
            return self.here(Name(f"{value.text}[{key}]"), node)
        raise Unknown(f"{describe(value)} is not known")

    def _all(self, nodes: list[ast.expr], scope: Scope) -> Args:
        """Values of several expressions, with the items of those that have a star."""
        items: Args = []
        for each in nodes:
            if isinstance(each, ast.Starred):
                items += self.items(self.of(each.value, scope))
            else:
                items.append(self.of(each, scope))
        return items

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Written:
        items = self._all(node.elts, scope)
        return self.here(tuple(items) if isinstance(node, ast.Tuple) else items, node)

    def _dict(self, node: ast.Dict, scope: Scope) -> Written:
        group: dict[object, Written] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            value = self.of(each, scope)
            if key is not None:
                group[self._key(self.of(key, scope))] = value
            else:
                self._spread(group, value, each)
        return self.here(group, node)

    def _spread(self, group: dict[Any, Written], written: Written, node: ast.expr) -> None:
        """`**group` in a call or a group."""
        if isinstance(written.value, dict):
            self.reading.spend(len(written.value))
            group |= written.value
        else:
            label = describe(written.value)
            group[f"**{label}"] = self.unread(node, f"{label} is not known")

    def _key(self, key: Written) -> object:
        """The key of a group: plain, or else the text of what it is. Raises Unknown, Exhausted."""
        return key.value.text if isinstance(key.value, (Name, Unread)) else self.plain(key)

    def _binary(self, node: ast.BinOp, scope: Scope) -> Written:
        """An operator on numbers, texts, lists or groups; items stay as they are written, each with its place."""
        left, right = self.of(node.left, scope).value, self.of(node.right, scope).value
        groups = (list, tuple, dict)
        if not (isinstance(left, groups) and isinstance(right, (*groups, int))):
            left, right = self.reading.plain(left), self.reading.plain(right)
        kind = type(node.op)
        sizes = [len(each) if isinstance(each, (str, list, tuple)) else 0 for each in (left, right)]
        numbers = [each if isinstance(each, int) else 1 for each in (left, right)]
        if kind is ast.Mult:
            too_large = sizes[0] * numbers[1] + sizes[1] * numbers[0] > MAX_ITEMS
        elif kind is ast.Pow:
            too_large = isinstance(right, int) and abs(right) * max(numbers[0].bit_length(), 1) > _MAX_BITS * 4
        else:
            too_large = sum(sizes) > MAX_ITEMS or (kind is ast.Mod and isinstance(left, str))
        if kind not in _ARITHMETIC or too_large:
            raise Unknown("it is too large or of no kind that is computed")
        return self.here(_ARITHMETIC[kind](left, right), node)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Written:
        value = self.of(node.operand, scope).value
        if isinstance(node.op, ast.Not):
            return self.here(not truth(value), node)
        number = self.reading.plain(value)
        return self.here(-number if isinstance(node.op, ast.USub) else +number, node)

    def _either(self, node: ast.BoolOp, scope: Scope) -> Written:
        wanted = isinstance(node.op, ast.Or)
        for each in node.values[:-1]:
            written = self.of(each, scope)
            if truth(written.value) is wanted:
                return written
        return self.of(node.values[-1], scope)

    def _comparison(self, node: ast.Compare, scope: Scope) -> Written:
        left = self.of(node.left, scope).value
        for kind, each in zip(node.ops, node.comparators, strict=True):
            right = self.of(each, scope).value
            if not self._compared(kind, left, right):
                return self.here(False, node)
            left = right
        return self.here(True, node)

    def _compared(self, kind: ast.cmpop, left: object, right: object) -> bool:
        if isinstance(kind, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            wanted = isinstance(kind, (ast.Is, ast.Eq))
            if isinstance(left, Name) and left == right:
                return wanted
            if (left is None and _is_something(right)) or (right is None and _is_something(left)):
                return not wanted
        return bool(_COMPARISON[type(kind)](self.reading.plain(left), self.reading.plain(right)))

    def _conditional(self, node: ast.IfExp, scope: Scope) -> Written:
        return self.of(node.body if truth(self.of(node.test, scope).value) else node.orelse, scope)

    def _joined(self, node: ast.JoinedStr, scope: Scope) -> Written:
        parts = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue) and (each.format_spec or each.conversion != -1):
                raise Unknown("formats are not computed")
            parts.append(str(self.plain(self.of(each.value if isinstance(each, ast.FormattedValue) else each, scope))))
        return self.here("".join(parts), node)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Written:
        return self.here(Function(node, scope, self._defaults(node.args, scope), self), node)

    def _list_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Written:
        return self.here([self.of(node.elt, inner) for inner in self._rounds(node.generators, scope)], node)

    def _dict_of(self, node: ast.DictComp, scope: Scope) -> Written:
        rounds = self._rounds(node.generators, scope)
        return self.here({self._key(self.of(node.key, inner)): self.of(node.value, inner) for inner in rounds}, node)

    def _rounds(self, loops: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        """The names of each round of a comprehension. Raises Unknown."""
        items = self.items(self.of(loops[0].iter, scope))
        if len(loops) > 1:
            raise Unknown("loops in loops are not computed")
        for item in items:
            inner = Scope(scope)
            self.assign(loops[0].target, item, inner)
            if all(truth(self.of(test, inner).value) for test in loops[0].ifs):
                yield inner

    # Calls: functions and classes of the file are evaluated, a few of the language computed, all others kept as data.

    def _call(self, node: ast.Call, scope: Scope) -> Written:
        args = self._all(node.args, scope)
        kwargs: Kwargs = {}
        for keyword in node.keywords:
            written = self.of(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg] = written
            else:
                self._spread(kwargs, written, keyword.value)
        if not isinstance(node.func, ast.Attribute):
            return self._result(self.of(node.func, scope).value, args, kwargs, node)
        base = self.of(node.func.value, scope)
        if isinstance(base.value, (list, tuple, dict, str)):
            return self._method(base.value, node.func.attr, args, kwargs, node)
        return self._result(self.attribute(base, node.func).value, args, kwargs, node)

    def _result(self, callee: object, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
        """What a call of a known callee gives; calls of what no file at hand defines are kept. Raises Unknown."""
        where, name = self.text.where(node), describe(callee)
        if isinstance(callee, Unread):
            raise Unknown(callee.why)
        if isinstance(callee, Function):
            return callee.home.called(callee, args, kwargs, where)
        if name in _CONFIGURED and args and isinstance(args[0].value, (Name, LocalClass, Function)):
            callee, name, args = args[0].value, describe(args[0].value), args[1:]
        elif isinstance(callee, Name) and name in _KNOWN:
            return _KNOWN[name](self, args, kwargs, node)
        written = self.made(callee, args, kwargs, where)
        self.reading.calls.append(written)
        return written

    def made(self, callee: object, args: Args, kwargs: Kwargs, where: Location) -> Written:
        """An object of a class: its fields have the defaults of the class, then what the call says."""
        if not isinstance(callee, LocalClass):
            name = describe(callee)
            return Written(Thing(name, f"{_last(name)}(...)", where, tuple(args), dict(kwargs)), where)
        self.reading.spend(len(callee.parts))
        memo: dict[int, object] = {}
        parts = {
            name: Written(self.reading.copied(each.value, memo), each.where)
            for name, each in callee.parts.items()
            if not isinstance(each.value, (Function, LocalClass))
        }
        by_place = dict(zip(callee.fields, args, strict=False))
        rest = tuple(args[len(by_place) :])
        thing = Thing(callee.name, f"{callee.name}(...)", where, rest, parts | by_place | kwargs, callee.bases)
        return Written(thing, where)

    def called(self, function: Function, args: Args, kwargs: Kwargs, where: Location) -> Written:
        """What a function gives for these arguments; a parameter without a value is a thing that is not known."""
        if self.reading.depth >= MAX_DEPTH:
            return Written(Unread(f"{function.name}(...)", "calls are nested too deep"), where)
        self.reading.spend(len(function.defaults))
        spec = function.node.args
        places = [*spec.posonlyargs, *spec.args]
        scope = Scope(
            function.scope, {**function.defaults, **dict(zip([each.arg for each in places], args, strict=False))}
        )
        for each in (*places, *spec.kwonlyargs):
            if each.arg in kwargs:
                scope.names[each.arg] = kwargs[each.arg]
            elif each.arg not in scope.names:
                place = self.text.where(each)
                scope.names[each.arg] = Written(Thing("", each.arg, place), place)
        if isinstance(function.node, ast.Lambda):
            return self.of(function.node.body, scope)
        self.reading.depth += 1
        written = Written(None, where)
        try:
            self.run(function.node.body, scope)
        except Jump as jump:
            written = jump.written
        finally:
            self.reading.depth -= 1
        if isinstance(written.value, Thing) and self.module:
            written.value.made_by.append(f"{self.module}.{function.name}")
        if scope.doubt is not None:
            return Written(Unread(f"{function.name}(...)", scope.doubt), where)
        return written

    def _method(self, value: Any, name: str, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
        """What a method of a text, a list or a group gives. Raises Unknown: it is not computed; and _ERRORS."""
        if isinstance(value, str) and name in _TEXT_METHODS and not kwargs:
            return self._of_text(value, name, [self.plain(each) for each in args], node)
        self.reading.spend(1 if name in {"get", "append"} else len(value))
        if isinstance(value, list) and name in {"append", "extend"}:
            added = args if name == "append" else self.items(args[0])
            self.here([*value[:MAX_ITEMS], *added], node)
            value += added
            return self.here(None, node)
        if isinstance(value, dict) and name == "get":
            written: Written = value.get(self.plain(args[0]), args[1] if len(args) > 1 else self.here(None, node))
            return written
        if isinstance(value, dict) and name == "update" and all(isinstance(each.value, dict) for each in args):
            for each in args:
                self._spread(value, each, node)
            value.update(kwargs)
            return self.here(None, node)
        listed: dict[str, Any] = {
            "keys": lambda: [Written(key, each.where) for key, each in value.items()],
            "values": lambda: list(value.values()),
            "items": lambda: [Written((Written(key, each.where), each), each.where) for key, each in value.items()],
        }
        if isinstance(value, dict) and name in listed:
            return self.here(listed[name](), node)
        raise Unknown(f"'{name}' of a {'text' if isinstance(value, str) else 'list or group'} is not computed")

    def _of_text(self, text: str, name: str, args: list[Any], node: ast.Call) -> Written:
        self.reading.spend(1 + len(text) // _CHARACTERS)
        if name == "format":  # `{}` alone, without names and formats
            pieces = text.split("{}")
            if len(pieces) != len(args) + 1 or any("{" in piece for piece in pieces):
                raise Unknown("formats are not computed")
            return self.here(
                "".join([*(f"{piece}{arg}" for piece, arg in zip(pieces, args, strict=False)), pieces[-1]]), node
            )
        grown = (
            len(text) * len(args[0])
            if name == "join"
            else text.count(args[0]) * len(args[1])
            if name == "replace"
            else 0
        )
        if grown > MAX_ITEMS:
            raise Unknown("it is too large")
        made = getattr(text, name)(*args)
        return self.here([self.here(each, node) for each in made] if isinstance(made, list) else made, node)

    def _defaults(self, args: ast.arguments, scope: Scope) -> dict[str, Written]:
        """Default values of parameters by name."""
        places = [each.arg for each in (*args.posonlyargs, *args.args)]
        found = dict(zip(places[len(places) - len(args.defaults) :], args.defaults, strict=True))
        found |= {each.arg: value for each, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
        return {name: self.of(each, scope) for name, each in found.items()}

    # Statements.

    def run(self, body: list[ast.stmt], scope: Scope) -> None:
        """Evaluate statements. Raises Jump, Exhausted."""
        for node in body:
            self.reading.spend()
            handler = _STATEMENTS.get(type(node))
            if handler is not None:
                handler(self, node, scope)
            else:
                self.doubt([node], scope, "it is set by a statement that is not evaluated")

    def _return(self, node: ast.Return, scope: Scope) -> None:
        raise Jump(self.of(node.value, scope) if node.value else self.here(None, node))

    def _raise(self, node: ast.Raise, scope: Scope) -> None:
        raise Jump(self.unread(node, "an error is raised here"))

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        written = self.of(node.value, scope)
        for target in node.targets:
            self.assign(target, written, scope)

    def _annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.of(node.value, scope), scope)

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        value = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        self.assign(node.target, self.of(value, scope), scope)

    def assign(self, target: ast.expr, written: Written, scope: Scope) -> None:
        """Give a value to a name, an attribute, an item, or to several."""
        if isinstance(target, ast.Name):
            given = self.reading.given.get(target.id) if scope.around is None else None
            if given is not None:
                written = Written(foreign_scalar(given), Location(f"--set {target.id}"))
            scope.names[target.id] = written
        elif isinstance(target, ast.Attribute):
            owner = self.of(target.value, scope).value
            if isinstance(owner, (Thing, LocalClass)):
                owner.parts[target.attr] = written
        elif isinstance(target, ast.Subscript):
            self._set(target, written, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for place, (each, part) in enumerate(
                zip(target.elts, _parts(written.value, len(target.elts)), strict=True)
            ):
                self.assign(each, part or self.unread(target, f"value {place + 1} of it is not known"), scope)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.unread(target, "names with a star are not computed"), scope)

    def _set(self, target: ast.Subscript, written: Written, scope: Scope) -> None:
        """`owner[key] = value`."""
        try:
            key = self.plain(self.of(target.slice, scope))
        except Unknown:
            return
        owner = self.of(target.value, scope).value
        if isinstance(owner, (Thing, LocalClass)):
            owner.parts[str(key)] = written
        elif isinstance(owner, dict) or (isinstance(owner, list) and key in range(len(owner))):
            owner[key] = written

    def _expression(self, node: ast.Expr, scope: Scope) -> None:
        if isinstance(node.value, ast.Call):
            self.of(node.value, scope)

    def _if(self, node: ast.If, scope: Scope) -> None:
        try:
            holds = truth(self.of(node.test, scope).value)
        except Unknown:
            self.doubt([*node.body, *node.orelse], scope, f"it depends on '{self.text.segment(node.test)}'")
        else:
            self.run(node.body if holds else node.orelse, scope)

    def doubt(self, body: list[ast.stmt], scope: Scope, why: str) -> None:
        """What these statements may set is not known any more, nor what the function returns if they may return."""
        for node in _own_nodes(body):
            self.reading.spend()
            targets: list[ast.expr] = []
            if isinstance(node, ast.Return):
                scope.doubt = why
            elif isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, (ast.AugAssign, ast.For)) or (isinstance(node, ast.AnnAssign) and node.value):
                targets = [node.target]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # what may grow
                owner = self.of(node.func.value, scope).value
                targets = [node.func.value] if isinstance(owner, (list, dict)) else []
            for target in targets:
                self.assign(target, self.unread(target, why), scope)

    def _for(self, node: ast.For, scope: Scope) -> None:
        try:
            items = self.items(self.of(node.iter, scope))
        except Unknown as why:
            self.doubt([node], scope, str(why))
            return
        leaves = any(isinstance(each, (ast.Break, ast.Continue)) for each in _own_nodes(node.body))
        if len(items) > _MAX_ROUNDS or leaves:
            why_not = "that is left early" if leaves else f"of more than {_MAX_ROUNDS} rounds"
            self.doubt([node], scope, f"it is set in a loop {why_not}")
            return
        for item in items:
            self.assign(node.target, item, scope)
            self.run(node.body, scope)
        self.run(node.orelse, scope)

    def _with(self, node: ast.With, scope: Scope) -> None:
        for item in node.items:
            written = self.of(item.context_expr, scope)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, written, scope)
        self.run(node.body, scope)

    def _try(self, node: ast.Try, scope: Scope) -> None:
        self.run([*node.body, *node.orelse, *node.finalbody], scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        """A function is bound; a cell of a marimo notebook, whose names are those of the whole file, is evaluated."""
        decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        if not any(isinstance(each, ast.Attribute) and each.attr == "cell" for each in decorators):
            function = Function(node, scope, self._defaults(node.args, scope), self)
            scope.names[node.name] = self.here(function, node)
            return
        try:
            self.run(node.body, scope)
        except Jump:
            return

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        """A class is bound: its attributes after those of its bases, as far as these are in files at hand."""
        parts: dict[str, Written] = {}
        names: list[str] = []
        fields: dict[str, None] = {}
        for base in reversed([self.of(each, scope).value for each in node.bases]):
            names.append(describe(base))
            if isinstance(base, LocalClass):
                self.reading.spend(len(base.parts) + len(base.bases))
                parts |= base.parts
                names += base.bases
                fields |= dict.fromkeys(base.fields)
        name = f"{scope.prefix}{node.name}"
        inner = Scope(scope, prefix=f"{name}.")
        self.run(node.body, inner)
        annotated = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
        fields |= dict.fromkeys(each.id for each in annotated if isinstance(each, ast.Name))
        parts |= {each: self._field(written) for each, written in inner.names.items()}
        scope.names[node.name] = self.here(LocalClass(name, parts, tuple(names), tuple(fields)), node)

    def _field(self, written: Written) -> Written:
        """The default of a field: `field(default=..., default_factory=...)` says it in other words."""
        thing = written.value
        if not isinstance(thing, Thing) or _last(thing.name) not in {"field", "Field"}:
            return written
        if "default" in thing.parts or thing.args:
            return thing.parts.get("default") or thing.args[0]
        factory = thing.parts.get("default_factory")
        if factory is None:
            return Written(Thing("", thing.label, thing.where), written.where)
        if isinstance(factory.value, Function):
            return factory.value.home.called(factory.value, [], {}, factory.where)
        if isinstance(factory.value, Name) and factory.value.text in {"list", "dict"}:
            return Written({} if factory.value.text == "dict" else [], factory.where)
        return self.made(factory.value, [], {}, factory.where)

    def _nothing(self, node: ast.stmt, scope: Scope) -> None:
        """Statements that set nothing."""

    # Imports: names get what a file at hand defines, else their full dotted names. Nothing is imported.

    def _import(self, node: ast.Import, scope: Scope) -> None:
        """`import a.b` and `import a.b as c`."""
        for each in node.names:
            if len(each.name) > MAX_NAME:
                continue
            around, _, last = each.name.rpartition(".")
            first = each.name.partition(".")[0]
            if each.asname:
                scope.names[each.asname] = self.here(Deferred(around, last) if around else Name(first), node)
            else:
                scope.names[first] = self.here(Name(first), node)
                self.imported.update(accumulate(each.name.split("."), "{}.{}".format))

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        """`from a.b import c, d as e`; a module that is relative to the file that is read stays so."""
        module = "." * node.level + (node.module or "")
        if node.level and self.module:
            is_package = self.text.name.endswith("__init__.py")
            parts = (self.module.rstrip(".") if is_package else self.module.rpartition(".")[0]).split(".")
            around = parts[: len(parts) - node.level + 1]
            module = ".".join([*around, node.module] if node.module else around) or "."
        for each in node.names:
            if each.name != "*" and len(module) <= MAX_NAME:
                scope.names[each.asname or each.name] = self.here(Deferred(module, each.name), node)


def _is_something(value: object) -> bool:
    """Whether a value is surely not None: what a class makes is an object."""
    if isinstance(value, Thing):
        return _last(value.name)[:1].isupper()
    return isinstance(value, (list, tuple, dict, Function, LocalClass))


def _parts(value: object, count: int) -> list[Written | None]:
    """The values that several targets get; None where they are not known."""
    if isinstance(value, Thing):
        return [value.part(f"[{place}]") for place in range(count)]
    return list(value) if isinstance(value, (list, tuple)) and len(value) == count else [None] * count


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Nodes of statements, without those of functions and classes inside."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            left += ast.iter_child_nodes(node)


_EXPRESSIONS: Mapping[type[ast.expr], Callable[..., Written]] = {
    ast.Constant: Evaluator._constant, ast.Name: Evaluator._name, ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript, ast.List: Evaluator._sequence, ast.Tuple: Evaluator._sequence,
    ast.Set: Evaluator._sequence, ast.Dict: Evaluator._dict, ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary, ast.BoolOp: Evaluator._either, ast.Compare: Evaluator._comparison,
    ast.IfExp: Evaluator._conditional, ast.JoinedStr: Evaluator._joined, ast.Lambda: Evaluator._lambda,
    ast.ListComp: Evaluator._list_of, ast.SetComp: Evaluator._list_of, ast.GeneratorExp: Evaluator._list_of,
    ast.DictComp: Evaluator._dict_of, ast.Call: Evaluator._call,
}  # fmt: skip
_STATEMENTS: Mapping[type[ast.stmt], Callable[..., None]] = {
    ast.Return: Evaluator._return, ast.Raise: Evaluator._raise, ast.Assign: Evaluator._assign,
    ast.AnnAssign: Evaluator._annotated, ast.AugAssign: Evaluator._augmented, ast.Expr: Evaluator._expression,
    ast.If: Evaluator._if, ast.For: Evaluator._for, ast.With: Evaluator._with, ast.Try: Evaluator._try,
    ast.FunctionDef: Evaluator._function, ast.AsyncFunctionDef: Evaluator._function, ast.ClassDef: Evaluator._class,
    ast.Import: Evaluator._import, ast.ImportFrom: Evaluator._import_from, ast.Pass: Evaluator._nothing,
    ast.Assert: Evaluator._nothing, ast.Delete: Evaluator._nothing,
}  # fmt: skip


# Functions of the language and of its library that are computed, since configurations use them.


def _computed(function: Callable[..., Any]) -> Callable[[Evaluator, Args, Kwargs, ast.Call], Written]:
    """A function of plain values alone."""

    def call(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
        made = function(*map(ev.plain, args), **{key: ev.plain(each) for key, each in kwargs.items()})
        return ev.here([ev.here(each, node) for each in made] if isinstance(made, (list, range)) else made, node)

    return call


def _range(*bounds: int) -> range:
    if len(range(*bounds)) > MAX_ITEMS:
        raise Unknown("it is too large")
    return range(*bounds)


def _length(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    value = args[0].value
    if not isinstance(value, (str, list, tuple, dict)):
        raise Unknown(f"{describe(value)} is not known")
    return ev.here(len(value), node)


def _listed(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    items = ev.items(args[0]) if args else []
    return ev.here(tuple(items) if ast.unparse(node.func) == "tuple" else items, node)


def _group(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    given = args[0].value if args else {}
    if not isinstance(given, dict):
        raise Unknown(f"{describe(given)} is not known")
    return ev.here({**given, **kwargs}, node)


def _zip(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    rows = zip(*[ev.items(each) for each in args], strict=False)
    return ev.here([ev.here(row, node) for row in rows], node)


def _known_attribute(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """`getattr` and `hasattr`: of something foreign only what the file has set is known."""
    owner, name = args[0].value, str(ev.plain(args[1]))
    if not isinstance(owner, Thing):
        raise Unknown(f"{describe(owner)} is not known")
    if ast.unparse(node.func) == "getattr":
        return owner.part(name)
    part = owner.parts.get(name)
    if part is None or (isinstance(part.value, Thing) and part.value.is_blank):
        raise Unknown(f"{describe(owner)} is not known")
    return ev.here(True, node)


def _copy(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """`copy` and `deepcopy`, and `replace` with its changes."""
    value = ev.reading.copied(args[0].value, {})
    if isinstance(value, Thing):
        value.parts |= kwargs
    elif kwargs:
        raise Unknown(f"{describe(value)} is not known")
    return Written(value, args[0].where)


def _environment(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """A variable of the environment: what was passed, else what the file takes where it is not set."""
    name = ev.plain(args[0])
    if name in ev.reading.given:
        return Written(ev.reading.given[name], Location(f"--set {name}"))
    default = args[1] if len(args) > 1 else kwargs.get("default")
    if default is None:
        raise Unknown(f"${name} is not known")
    return default


_KNOWN: Mapping[str, Callable[[Evaluator, Args, Kwargs, ast.Call], Written]] = {
    **{each.__name__: _computed(each) for each in (int, float, str, bool, abs, min, max, sum, sorted)},
    # for -1e9 digits of an integer `round` makes a number of a billion digits
    "round": _computed(lambda number, digits=None: round(number, None if digits is None else max(digits, -400))),
    "range": _computed(_range), "len": _length, "zip": _zip, "getattr": _known_attribute, "dict": _group,
    **dict.fromkeys(("list", "set", "frozenset", "tuple"), _listed), "hasattr": _known_attribute,
    **dict.fromkeys(("dataclasses.replace", "copy.copy", "copy.deepcopy"), _copy),
    **dict.fromkeys(("os.environ.get", "os.getenv"), _environment),
    "typing.cast": lambda ev, args, kwargs, node: args[1],
}  # fmt: skip
"""Functions by their full names, with imports resolved."""


# A Python file as data: its names, its calls, and what its functions return as configurations.

FindModule = Callable[[str], "tuple[str, str] | None"]


def read_python(text: str, name: str, given: Mapping[str, str] | None = None, find: FindModule | None = None) -> Module:
    """Read a Python file or notebook without executing any of it.

    given : values of variables of the file and of the environment; they win over what the file says
    find : text and file name of a module by its dotted name, or None where its file is not at hand

    Raises
    ------
    InputError    no valid Python, more than MAX_CHARACTERS, or it takes too long to evaluate
    """

    def opened(module: str, reading: Reading) -> Evaluator | None:
        """A module whose file is at hand, is valid Python and does not take too long."""
        found = find(module) if find else None
        reading.characters -= len(found[0]) if found else 0
        if found is None or reading.characters < 0:
            return None
        calls, steps = len(reading.calls), reading.steps
        reading.steps = MAX_STEPS
        try:
            return _evaluated(PythonText(*found), reading, module)
        except InputError:
            return None
        finally:
            reading.steps = steps
            del reading.calls[calls:]

    return Module(_evaluated(PythonText(text, name), Reading(given or {}, opened), ""))


def _evaluated(text: PythonText, reading: Reading, module: str) -> Evaluator:
    evaluator = Evaluator(text, reading, module)
    evaluator.scope.names["__name__"] = Written(module or "__main__", Location(text.name))
    for node in text.body:
        try:
            evaluator.run([node], evaluator.scope)
        except Exhausted:
            reading.steps = MAX_STEPS
            try:
                evaluator.doubt([node], evaluator.scope, "it takes too long to evaluate")
            except Exhausted:
                why = "from here on the file takes too long to evaluate"
                raise InputError(Problem(why, text.where(node))) from None
        except (Jump, RecursionError):
            continue
    return evaluator


class Module:
    """What a file says."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._reading = evaluator.reading
        self._met = tuple(evaluator.reading.calls)

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
        found = {name: self.entry(name) for name in self._functions if not name.startswith("_")}
        return {name: each for name, each in found.items() if _is_configuration(each.value)}

    def entry(self, name: str) -> Written:
        """What a function of the file returns. Raises InputError: the file has no such function."""
        if name not in self._functions:
            hint = did_you_mean(name, self._functions)
            raise InputError(Problem(f"the file has no function '{name}'", Location(self._evaluator.text.name), hint))
        function = self._functions[name]
        where = self._evaluator.text.where(function.node)
        self._reading.steps = MAX_STEPS
        self._reading.depth = 0
        try:
            return Freezer(self._reading).written(self._evaluator.called(function, [], {}, where))
        except (Exhausted, RecursionError):
            return Written(Unread(f"{name}()", "it takes too long to evaluate"), where)

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
