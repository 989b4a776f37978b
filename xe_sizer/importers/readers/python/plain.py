"""Operators and methods on plain values, within bounds on what they make."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from xe_sizer.importers.readers.python.objects import Function, LocalClass, Plain, Thing
from xe_sizer.importers.readers.python.values import Name

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.reading import Reading
    from xe_sizer.importers.written import Written

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
