"""Functions and classes that a file defines."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python.objects import Function, LocalClass, Scope, Thing
from xe_sizer.importers.readers.python.plain import label_of
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator

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
