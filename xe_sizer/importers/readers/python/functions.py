"""Calls of functions whose file is at hand: their statements are evaluated with the arguments of the call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python.objects import Scope, Thing
from xe_sizer.importers.readers.python.reading import MAX_DEPTH
from xe_sizer.importers.readers.python.statements import Jump, Raised, Returned, run
from xe_sizer.importers.written import Unread, Written

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.readers.python.objects import Function


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
