"""Expressions of a Python file, computed from literals and known names; everything else is Unread.

Nothing is executed: operators and a few functions of the language are computed on plain values within bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.importers.readers.python import plain
from xe_sizer.importers.readers.python.calls import called, made_by
from xe_sizer.importers.readers.python.objects import MAX_NAME, Deferred, Function, Imported, LocalClass, Scope, Thing
from xe_sizer.importers.readers.python.plain import ERRORS, MAX_ITEMS, Unknown, label_of, parts_of_text, truth
from xe_sizer.importers.readers.python.values import Name
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.reading import Reading
    from xe_sizer.importers.readers.python.text import PythonText

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
        handler = _HANDLERS.get(type(node))
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
        return plain.plain(written.value, self.reading)

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
    return ev.here(plain.arithmetic(node.op, left, right, ev.reading), node)


def _unary(ev: Evaluator, node: ast.UnaryOp, scope: Scope) -> Written:
    return ev.here(plain.unary(node.op, ev.of(node.operand, scope).value, ev.reading), node)


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
        if not plain.compared(kind, left, right, ev.reading):
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
            parts.append(plain.formatted(ev.of(each.value, scope).value, spec, each.conversion, ev.reading))
        else:
            parts.append(str(ev.plain(ev.of(each, scope))))
    if sum(map(len, parts)) > MAX_ITEMS:
        raise Unknown("it is too large")
    return ev.here("".join(parts), node)


def _named(ev: Evaluator, node: ast.NamedExpr, scope: Scope) -> Written:
    scope.names[node.target.id] = ev.of(node.value, scope)
    return scope.names[node.target.id]


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


_HANDLERS: Mapping[type[ast.expr], Callable[..., Written]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript,
    ast.List: _sequence, ast.Tuple: _sequence, ast.Set: _sequence, ast.Dict: _dict, ast.BinOp: _binary,
    ast.UnaryOp: _unary, ast.BoolOp: _either, ast.Compare: _comparison, ast.IfExp: _conditional,
    ast.JoinedStr: _joined, ast.NamedExpr: _named, ast.Lambda: _lambda, ast.ListComp: _list_of,
    ast.SetComp: _list_of, ast.GeneratorExp: _list_of, ast.DictComp: _dict_of, ast.Call: called,
}  # fmt: skip
