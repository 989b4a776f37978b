"""Calls: functions and classes of the file are evaluated, a few of the language computed, all others kept as data."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python import plain
from xe_sizer.importers.readers.python.functions import call_function, is_class_method
from xe_sizer.importers.readers.python.known import KNOWN, METHODS
from xe_sizer.importers.readers.python.objects import Function, LocalClass, Thing, copied
from xe_sizer.importers.readers.python.plain import Unknown, label_of
from xe_sizer.importers.readers.python.values import Name
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from xe_sizer.errors import Location
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.readers.python.objects import Scope

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
        made = plain.method_of_text(value, name, args, ev.reading)
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
    if len(items) >= plain.MAX_ITEMS:
        raise Unknown("it is too large")
    if name == "append":
        items.append(args[0])
    elif name == "insert":
        items.insert(ev.plain(args[0]), args[1])
    else:
        items += ev.items(args[0])[: plain.MAX_ITEMS]


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
