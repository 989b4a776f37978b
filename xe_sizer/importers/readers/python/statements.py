"""Statements of a Python file: assignments, conditions on known values, bounded loops, definitions and imports.

What depends on a condition that is not known becomes Unread; no branch is guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from xe_sizer.errors import Location
from xe_sizer.importers.readers.python.definitions import define_class, define_function, is_cell
from xe_sizer.importers.readers.python.imports import import_from, import_names
from xe_sizer.importers.readers.python.objects import LocalClass, Thing
from xe_sizer.importers.readers.python.plain import Unknown, truth
from xe_sizer.importers.readers.python.values import Name
from xe_sizer.importers.written import Written
from xe_sizer.profiles.text import foreign_scalar

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.readers.python.objects import Scope

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
        handler = _HANDLERS.get(type(node))
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


_HANDLERS: Mapping[type[ast.stmt], Callable[..., None]] = {
    ast.Return: _return, ast.Raise: _raise, ast.Break: _break, ast.Continue: _continue, ast.Assign: _assign,
    ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.Expr: _expression, ast.If: _if, ast.For: _for,
    ast.With: _with, ast.Try: _try, ast.FunctionDef: _function, ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class, ast.Import: import_names, ast.ImportFrom: import_from, ast.Pass: _nothing,
    ast.Assert: _nothing, ast.Global: _global, ast.Nonlocal: _nothing, ast.Delete: _nothing,
}  # fmt: skip
