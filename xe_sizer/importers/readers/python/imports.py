"""Imports: names get what a file at hand defines, else their full dotted names. Nothing is imported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python.objects import Imported
from xe_sizer.importers.readers.python.values import Name

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.readers.python.objects import Scope


def import_names(ev: Evaluator, node: ast.Import, scope: Scope) -> None:
    """`import a.b` and `import a.b as c`."""
    for each in node.names:
        name = each.name if each.asname else each.name.partition(".")[0]
        scope.names[each.asname or name] = ev.here(_module_or_name(ev, name), node)


def import_from(ev: Evaluator, node: ast.ImportFrom, scope: Scope) -> None:
    """`from a.b import c, d as e`, also relative to the package of the file, and with a star."""
    module = "." * node.level + (node.module or "")
    home = ev.reading.module(module)
    for each in node.names:
        if each.name == "*":
            scope.names |= {name: value for name, value in home.scope.names.items() if name[0] != "_"} if home else {}
            continue
        found = home.scope.names.get(each.name) if home else None
        dotted = f"{module}{'' if module.endswith('.') else '.'}{each.name}"
        scope.names[each.asname or each.name] = found or ev.here(_module_or_name(ev, dotted), node)


def _module_or_name(ev: Evaluator, dotted: str) -> Imported | Name:
    home = ev.reading.module(dotted)
    return Imported(dotted, home) if home else Name(dotted)
