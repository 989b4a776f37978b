"""Functions of the language and of its library that are computed, since configurations use them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import Location
from xe_sizer.importers.readers.python.objects import Thing, copied
from xe_sizer.importers.readers.python.plain import MAX_ITEMS, Unknown, label_of
from xe_sizer.importers.written import Written
from xe_sizer.profiles.text import foreign_scalar

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator

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


def _attribute(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    """`getattr`: of something foreign only what the file has set is known."""
    owner, name = args[0].value, ev.plain(args[1])
    if isinstance(owner, Thing):
        return owner.part(str(name))
    if isinstance(owner, dict):
        return owner.get(name) or args[2]
    raise Unknown(f"{label_of(owner)} is not known")


def _set_attribute(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    owner, name = args[0].value, ev.plain(args[1])
    if isinstance(owner, Thing):
        owner.parts[str(name)] = args[2]
    return ev.here(None, node)


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


def _first(ev: Evaluator, args: Args, kwargs: Kwargs, node: ast.Call) -> Written:
    return args[0] if args else ev.here({}, node)


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
    "dict": _group, "zip": _zip, "enumerate": _enumerate, "getattr": _attribute, "setattr": _set_attribute,
    "hasattr": _has_attribute, "dataclasses.replace": _copy, "copy.copy": _copy, "copy.deepcopy": _copy,
    "typing.cast": _second, "omegaconf.OmegaConf.create": _first, "reversed": lambda ev, args, kwargs, node: ev.here(
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
