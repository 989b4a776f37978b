"""Plain data (what a YAML file holds) to typed structs, with every problem found and worded for people."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from xe_sizer.errors import InputError, ProblemList, did_you_mean, file_order
from xe_sizer.fields import RANGE, description_of, fields_of, homes, is_struct, without_metas

if TYPE_CHECKING:
    from xe_sizer.errors import Hint, Location
    from xe_sizer.fields import Field

# Ranges of figures in profiles. The upper ends are far above any real part; they find a wrong unit or a slip of the
# keyboard.
Positive = Annotated[float, Meta(gt=0, le=1e9)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
MemoryGib = Annotated[float, Meta(gt=0, le=1e5)]
GbPerS = Annotated[float, Meta(gt=0, le=1e6)]
Tflops = Annotated[float, Meta(gt=0, le=1e6)]
Watt = Annotated[float, Meta(gt=0, le=1e5)]
Microseconds = Annotated[float, Meta(ge=0, le=1e6)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Gpus = Annotated[int, Meta(gt=0, le=100_000)]
Error = Annotated[float, Meta(ge=0, description="absolute relative error of the fit")]


MOST_HOMES = 2  # sections that a hint names in which a key would stand, those that are written most


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the figures of a file come from."""

    title: str
    url: str | None = None
    read_on: str | None = None


T = TypeVar("T")
KeyPath = tuple[str | int, ...]
"""Keys and list indices (from 0) that lead from the root of a document to a value."""
_SCALAR_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    NoneType: "empty",
}
_SHOWN_CHARACTERS = 40
_CURRENCY = re.compile(r"^\s*[$€£]|\s*(?:[$€£]|[A-Z]{3})\s*$")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_SWAPPED = str.maketrans(",.", ".,")  # a number as other countries write it


class Locate(Protocol):
    """Says where the value (or, with key=True, the key) of a path stands."""

    def __call__(self, key_path: KeyPath, *, key: bool = False) -> Location: ...


def convert(value: object, type_: type[T], locate: Locate) -> T:
    """Turn dicts, lists and scalars into `type_`, a msgspec Struct or a dict, list or tuple of them.

    Stricter than `msgspec.convert`: unknown keys are refused whatever the struct allows, a bool is no
    number, 8.0 is no whole number, NaN and infinities are refused.

    Raises
    ------
    InputError    with every problem of the data, in the order in which they stand in the file
    """
    converter = _Converter(type_, locate)
    result = converter.convert(value, type_, ())
    if found := converter.found.problems:
        raise InputError(sorted(found, key=file_order))
    return cast(T, result)


def convert_what_is_right(value: object, type_: type[T], locate: Locate) -> T:
    """As `convert`, but every key with a problem is left out, and a key that must be there is None instead.

    For a look at the rest of data that `convert` refused. `type_` is a Struct whose other keys have defaults.
    """
    return cast(T, _Converter(type_, locate, keeps_the_rest=True).convert(value, type_, ()))


def shorten(text: str) -> str:
    """Text cut to a length that a message can hold."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def show(value: object) -> str:
    """A value as an error message names it, cut to a readable length."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(shorten(value))
    if isinstance(value, Mapping):
        return "a group of keys"
    if isinstance(value, list | tuple):
        return "a list"
    return "a number beyond measure" if isinstance(value, int) and abs(value) > _MOST else f"{value}"


_MOST = 10**300  # beyond, a whole number is no float, and further on Python does not write it


class _Failed:
    """Stands for a value with a problem; the conversion goes on to find the next one."""


_FAILED = _Failed()


class _Converter:
    def __init__(self, root: Any, locate: Locate, *, keeps_the_rest: bool = False) -> None:
        self.root = root
        self.locate = locate
        self.keeps_the_rest = keeps_the_rest
        self.found = ProblemList()

    @cached_property
    def homes(self) -> Mapping[str, list[tuple[str, ...]]]:
        """The sections in which each known key stands."""
        found = defaultdict(list)
        for home, known in homes(self.root):
            found[known].append(home)
        return found

    def fail(self, message: str, path: KeyPath, *, key: bool = False, hint: Hint = None) -> _Failed:
        self.found.add(message, lambda: self.locate(path, key=key), hint)
        return _FAILED

    def convert(self, value: object, type_: Any, path: KeyPath) -> object:
        base, metas = without_metas(type_)
        origin = get_origin(base) or base
        if base is Any or base is object:
            return value
        if origin is Union or origin is UnionType:
            return self.check(self.union(value, base, path), metas, path)
        if is_struct(base):
            return self.struct({} if value is None else value, base, path)
        if not _has_form(value, base):
            return self.mismatch(value, (base,), path)
        if isinstance(value, Mapping):
            return self.check(self.mapping(value, base, path), metas, path)
        if isinstance(value, list | tuple):
            return self.check(self.sequence(value, base, path), metas, path)
        if isinstance(value, float) and not math.isfinite(value):
            return self.fail(f"{_label(path)} must be a finite number, not {value}", path)
        return self.check(self.leaf(value, base, path), metas, path)

    def union(self, value: object, base: Any, path: KeyPath) -> object:
        arms = get_args(base)
        if value is None and NoneType in arms:
            return None
        present = tuple(arm for arm in arms if arm is not NoneType)
        if len(present) == 1:
            return self.convert(value, present[0], path)
        for arm in present:
            if _has_form(value, without_metas(arm)[0]):
                return self.convert(value, arm, path)
        return self.mismatch(value, present, path)

    def struct(self, value: object, base: Any, path: KeyPath) -> object:
        if not isinstance(value, Mapping):
            return self.mismatch(value, (base,), path)
        fields = fields_of(base)
        found: dict[str, object] = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                self.unknown(key, fields, path)
            else:
                found[field.name] = self.convert(item, field.type, (*path, key))
        missing = [field for field in fields.values() if field.required and field.name not in found]
        for field in missing:
            inside = f" in {_label(path)}" if path else ""
            hint = ": ".join(filter(None, (description_of(field.type), _choice(field.type)))) or None
            self.fail(f"missing key '{field.key}'{inside}", path, key=True, hint=hint)
        if self.keeps_the_rest:
            return self.rest(base, found, is_root=not path)
        if missing or any(item is _FAILED for item in found.values()):
            return _FAILED
        try:
            return base(**found)
        except (ValueError, TypeError) as error:
            return self.fail(str(error), path)

    def rest(self, base: Any, found: Mapping[str, object], *, is_root: bool) -> object:
        """The struct of what was found without a problem; only the root may lack what it requires."""
        right = {name: item for name, item in found.items() if item is not _FAILED}
        lacking = [field.name for field in fields_of(base).values() if field.required and field.name not in right]
        if lacking and not is_root:
            return _FAILED
        return base(**dict.fromkeys(lacking), **right)

    def unknown(self, key: str, fields: Mapping[str, Field], path: KeyPath) -> None:
        inside = f" in {_label(path)}" if path else ""
        hint = partial(self.nearest, str(key), fields)
        self.fail(f"unknown key {show(key)}{inside}", (*path, key), key=True, hint=hint)

    def nearest(self, key: str, fields: Mapping[str, Field]) -> str:
        """What may be meant by an unknown key."""
        plain = key.lower().replace("-", "_")
        if plain in fields:
            return f"did you mean '{plain}'?"
        if known_in := self.homes.get(plain):
            most = known_in[:MOST_HOMES]
            places = " or ".join(f"under {'.'.join(home)}:" if home else "at the top level" for home in most)
            return f"'{plain}' belongs {places}"
        return did_you_mean(key, fields) or f"known keys: {', '.join(fields)}"

    def mapping(self, value: Mapping[str, object], base: Any, path: KeyPath) -> object:
        key_type, value_type = get_args(base) or (str, Any)
        found = {}
        for key, item in value.items():
            known = get_args(without_metas(key_type)[0])
            if known and key not in known:
                hint = partial(did_you_mean, key, [str(each) for each in known])
                message = f"key {show(key)} must be {_one_of(known)}"
                self.fail(message, (*path, key), key=True, hint=hint)
            found[key] = self.convert(item, value_type, (*path, key))
        return _FAILED if any(item is _FAILED for item in found.values()) else found

    def sequence(self, value: Sequence[object], base: Any, path: KeyPath) -> object:
        arguments = get_args(base)
        kind = tuple if (get_origin(base) or base) is tuple else list
        if kind is tuple and arguments and Ellipsis not in arguments:
            if len(value) != len(arguments):
                return self.fail(f"{_label(path)} must have {len(arguments)} items, not {len(value)}", path)
            types: Iterable[Any] = arguments
        else:
            types = [arguments[0] if arguments else Any] * len(value)
        pairs = enumerate(zip(value, types, strict=True))
        found = [self.convert(item, item_type, (*path, index)) for index, (item, item_type) in pairs]
        return _FAILED if any(item is _FAILED for item in found) else kind(found)

    def leaf(self, value: object, base: Any, path: KeyPath) -> object:
        if base is float and isinstance(value, int) and abs(value) > _MOST:
            return self.fail(f"{_label(path)} must be a number below 1e300", path)
        if base is float:
            return float(cast(float, value))
        if base in _SCALAR_NAMES:
            return value
        if get_origin(base) is Literal:
            options = get_args(base)
            if any(value == option and type(value) is type(option) for option in options):
                return value
            words = [str(option) for option in options]
            hint = partial(did_you_mean, value, words) if isinstance(value, str) else None
            return self.fail(f"{_label(path)} must be {_one_of(options)}, not {show(value)}", path, hint=hint)
        try:
            return msgspec.convert(value, base)
        except msgspec.ValidationError:
            return self.mismatch(value, (base,), path)

    def mismatch(self, value: object, types: Iterable[Any], path: KeyPath) -> _Failed:
        wanted = tuple(without_metas(type_)[0] for type_ in types)
        hint = None
        if str in wanted and isinstance(value, bool | int | float):
            hint = "put it in quotes to make it text"
        elif isinstance(value, str) and (int in wanted or float in wanted):
            hint = number_hint(value)
        elif isinstance(value, float) and int in wanted and value.is_integer():
            hint = f"write {value:.0f}"
        message = f"{_label(path)} must be {' or '.join(map(_type_name, wanted))}, not {show(value)}"
        return self.fail(message, path, hint=hint)

    def check(self, value: object, metas: Sequence[msgspec.Meta], path: KeyPath) -> object:
        if value is None or value is _FAILED:
            return value
        for meta in metas:
            broken = _broken_rule(value, meta)
            if broken:
                return self.fail(f"{_label(path)} must {broken}", path)
        return value


def _broken_rule(value: Any, meta: msgspec.Meta) -> str | None:
    """What a value that breaks a constraint must do instead, or None when it keeps all of them.

    A pattern is worded by `Meta(extra={"must": ...})`, a range by `RANGE` of it.
    """
    shown = f"{value:.12g}" if isinstance(value, float) else show(value)
    unit = "characters" if isinstance(value, str) else "items"
    if broken := _broken_bound(value, meta):
        return f"{(meta.extra or {}).get(RANGE, broken)}, not {shown}"
    if meta.multiple_of is not None and value % meta.multiple_of:
        return f"be a multiple of {meta.multiple_of}, not {shown}"
    if meta.min_length is not None and len(value) < meta.min_length:
        return "not be empty" if not value else f"have at least {meta.min_length} {unit}, not {len(value)}"
    if meta.max_length is not None and len(value) > meta.max_length:
        return f"have at most {meta.max_length} {unit}, not {len(value)}"
    if meta.pattern is not None and not re.search(meta.pattern, value):
        wanted = (meta.extra or {}).get("must") or f"match {meta.pattern}"
        return f"{wanted}, not {shown}"
    return None


def _broken_bound(value: Any, meta: msgspec.Meta) -> str | None:
    """The bound that a number does not keep."""
    if meta.gt is not None and not value > meta.gt:
        return f"be greater than {meta.gt:.12g}"
    if meta.ge is not None and not value >= meta.ge:
        return f"be at least {meta.ge:.12g}"
    if meta.lt is not None and not value < meta.lt:
        return f"be less than {meta.lt:.12g}"
    if meta.le is not None and not value <= meta.le:
        return f"be at most {meta.le:.12g}"
    return None


def _has_form(value: object, base: Any) -> bool:
    """Whether a value has the outer form of a type; its content and range are checked later."""
    origin = get_origin(base) or base
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin in _SCALAR_NAMES:
        return type(value) is origin
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple)
    if origin in (dict, Mapping) or is_struct(base):
        return isinstance(value, Mapping)
    return value is not None and not isinstance(value, list | tuple | Mapping)


def _type_name(base: Any) -> str:
    origin = get_origin(base) or base
    if origin is Literal:
        return _one_of(get_args(base))
    if origin in (list, tuple, Sequence):
        return "a list"
    if origin in (dict, Mapping) or is_struct(base):
        return "a group of keys"
    return _SCALAR_NAMES.get(base) or f"a {getattr(base, '__name__', str(base)).lower()}"


def _one_of(options: Sequence[object]) -> str:
    return repr(options[0]) if len(options) == 1 else "one of " + ", ".join(map(str, options))


def _choice(type_: Any) -> str | None:
    """What a key may be, where it has fixed options."""
    base = without_metas(type_)[0]
    return _one_of(get_args(base)) if get_origin(base) is Literal else None


def _label(path: KeyPath) -> str:
    if not path:
        return "the file"
    return f"'{path[-1]}'" if isinstance(path[-1], str) else f"item {path[-1] + 1} of {_label(path[:-1])}"


def number_hint(text: str) -> str | None:
    """The number that a text stands for: `2,50` and `$2.50` are 2.50, `50,000` and `50.000,00` are 50000."""
    bare = _CURRENCY.sub("", text).strip()
    if _THOUSANDS.fullmatch(bare):
        digits = bare.replace(",", "")
    elif _THOUSANDS.fullmatch(bare.translate(_SWAPPED)):
        digits = bare.replace(".", "").replace(",", ".")
    else:
        digits = bare.replace(",", ".")
    try:
        float(digits)
    except ValueError:
        return None
    if bare != text.strip():
        return f"write {digits} alone; the currency is a setting of its own"
    return f"write {digits} without quotes" + (" or commas" if digits != text else "")
