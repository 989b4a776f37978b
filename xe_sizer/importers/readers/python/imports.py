"""Imports: names get what a file at hand defines, else their full dotted names. Nothing is imported."""

from __future__ import annotations

import ast
from itertools import accumulate
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python.objects import MAX_NAME, Deferred
from xe_sizer.importers.readers.python.values import Name

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.readers.python.objects import Scope


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
