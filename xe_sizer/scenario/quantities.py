"""Values as people write them: words of other tools, numbers with a unit, thousands of tokens.

A word is read whatever its case and separators, and a key's own unit is that of its name: `max_hours: 2d` is 48, and
`max_ttft_s: 500ms` is 0.5. Of lengths in tokens k means 1024, as makers of models count: 4k is 4096 and 30k is 30720.
Of counts k, M, B and T are powers of ten. Commas between groups of three digits are left out: 290,000 is 290000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from xe_sizer.errors import InputError, Problem
from xe_sizer.fields import ALIASES, fields_of, is_struct, names_of, struct_in

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import Locate

QUANTITY = re.compile(r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Z%]+|(?:[a-zA-Z]+\s*)?/\s*[a-zA-Z]+)$")
GROUPED = re.compile(r"^[-+]?[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_SECONDS = {
    **dict.fromkeys(("us", "usec"), "1e-6"),
    **dict.fromkeys(("ms", "msec"), "1e-3"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "1"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "60"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "3600"),
    **dict.fromkeys(("d", "day", "days"), "86400"),
    **dict.fromkeys(("w", "week", "weeks"), "604800"),
}
_RATES = {"rps": Decimal(1), "qps": Decimal(1), "rpm": 1 / Decimal(60)}
_BYTES = {
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_WATTS = {"w": 1, "kw": 10**3, "mw": 10**6}
_POWERS = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_WORDS = {"thousand": "k", "million": "m", "billion": "b", "trillion": "t", "tok": "", "tokens": "", "token": ""}
_KIBI = {"k": 1024, "m": 1024**2}


def as_meant(
    values: Mapping[str, Any], struct: Any, locate: Locate, problems: list[Problem]
) -> tuple[dict[str, Any], Mapping[str, tuple[str, object]], frozenset[str]]:
    """Words and quantities of a scenario's keys as its schema has them; what cannot be read is told and left out.

    Returns
    -------
    the values; dotted keys with what was written and what it was read as, where that is more than a matter of case;
    dotted keys of numbers that were written with a unit
    """
    read: dict[str, tuple[str, object]] = {}
    with_unit: set[str] = set()

    def section(group: Mapping[str, Any], of: Any, path: tuple[str, ...]) -> dict[str, Any]:
        found = dict(group)
        for key, type_ in _known(group, of):
            value, here = group[key], (*path, key)
            base, metas = base_of(type_)
            if isinstance(value, Mapping) and is_struct(inner := struct_in(type_)):
                found[key] = section(value, inner, here)
            elif isinstance(value, str | bool):
                try:
                    found[key] = _value(value, key, base, metas)
                except InputError as error:
                    problems.extend(Problem(each.message, locate(here), each.hint) for each in error.problems)
                    del found[key]
                if isinstance(value, str) and key in found:
                    if _differs(value, found[key]):
                        read[".".join(here)] = (value, found[key])
                    if QUANTITY.fullmatch(value.strip()):
                        with_unit.add(".".join(here))
        return found

    return section(values, struct, ()), read, frozenset(with_unit)


def _known(group: Mapping[str, Any], of: Any) -> Iterator[tuple[str, Any]]:
    """Keys of a group that its struct has, with their types."""
    fields = fields_of(of)
    yield from ((key, fields[key].type) for key in group if key in fields)


def base_of(type_: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """A type without annotations and these; of several types the first that is not None."""
    metas: list[msgspec.Meta] = []
    while True:
        arguments = get_args(type_)
        if get_origin(type_) is Annotated:
            metas += (meta for meta in type_.__metadata__ if isinstance(meta, msgspec.Meta))
            type_ = arguments[0]
        elif get_origin(type_) in (Union, UnionType):
            type_ = next(argument for argument in arguments if argument is not type(None))
        else:
            return type_, tuple(metas)


def _differs(written: str, value: object) -> bool:
    """Whether a value is more than what was written without its unit, case and separators."""
    if isinstance(value, list):
        return False
    match = QUANTITY.fullmatch(written.strip())
    if match and isinstance(value, int | float):
        return float(match[1]) != value
    return _plain(written) != _plain(str(value))


def _value(value: str | bool, key: str, base: Any, metas: tuple[msgspec.Meta, ...]) -> object:
    """One value as its key has it. Raises InputError: it may be one of two."""
    options = get_args(base) if get_origin(base) is Literal else names_of(metas)
    if options:
        return _word(value, options, metas)
    if isinstance(value, str) and get_origin(base) is tuple and base_of(get_args(base)[0])[0] is str:
        return [part.strip() for part in value.split(",")]
    if isinstance(value, str) and base in (int, float):
        return quantity(value, key, base, share=any(1 in (meta.le, meta.lt) for meta in metas))
    return value


def _word(value: str | bool, options: tuple[object, ...], metas: tuple[msgspec.Meta, ...]) -> object:
    """The option that a word stands for, whatever its case and separators; the word itself where it is none."""
    stated: Any = next((meta.extra[ALIASES] for meta in metas if meta.extra and ALIASES in meta.extra), {})
    others: Mapping[str, object] = stated() if callable(stated) else stated
    known: dict[str, object] = {_plain(option): option for option in options if isinstance(option, str)}
    known |= {_plain(name): option for name, option in others.items()}
    return known.get(_plain(str(value)), value)


@lru_cache(maxsize=4096)
def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word.lower())


def quantity(text: str, key: str, base: type, *, share: bool) -> object:
    """The number in the unit of a key that a text with a unit says; the text itself where it says none.

    share : the key is a share, of which percent are written too
    """
    plain = GROUPED.sub(lambda digits: digits[0].replace(",", ""), text.strip())
    match = QUANTITY.fullmatch(plain)
    if not match:
        try:
            return base(plain) if GROUPED.match(text.strip()) else text
        except ValueError:
            return text
    number, unit = Decimal(match[1]), match[2].lower()
    factor = Decimal("0.01") if unit == "%" and share else _reader(key)(number, _WORDS.get(unit, unit), text)
    if factor is None and unit in (key, key.removesuffix("s")):
        factor = Decimal(1)  # "16 GPUs"
    if factor is None and takes_unit(key):
        kind = "a whole number" if base is int else "a number"
        hint = next((hint for ending, (_, hint) in _READERS.items() if key.endswith(ending)), _LARGE)
        raise InputError(
            Problem(f"'{key}' must be {kind}, not '{text}'", None, f"write it without a unit, or as {hint}")
        )
    if factor is None:
        return text
    value = number * factor
    whole = value == value.to_integral_value()
    if base is int:
        return int(value) if whole else text
    return float(value)


def _reader(key: str) -> Callable[[Decimal, str, str], Decimal | None]:
    """How the unit behind a number is read, which the name of the key says."""
    for ending, (reader, _) in _READERS.items():
        if key.endswith(ending):
            return reader
    return _length if "token" in key and key != "tokens" else _count


def takes_unit(key: str) -> bool:
    """Whether numbers of a key are usually written with a unit, or as thousands and millions."""
    return key.endswith(tuple(_READERS)) or "token" in key or key in ("samples", "steps")


def _seconds(number: Decimal, unit: str, text: str) -> Decimal | None:
    return Decimal(_SECONDS[unit]) if unit in _SECONDS else None


def _per_second(number: Decimal, unit: str, text: str) -> Decimal | None:
    """Of requests: 1000/min, 5 requests/s, 300 rpm."""
    what, per, time = unit.rpartition("/")
    if not per:
        return _RATES.get(unit) or _count(number, unit, text)
    known = what.strip() in ("", "request", "requests", "req") and time.strip() in _SECONDS
    return 1 / Decimal(_SECONDS[time.strip()]) if known else None


def _hours(number: Decimal, unit: str, text: str) -> Decimal | None:
    return Decimal(_SECONDS[unit]) / 3600 if unit in _SECONDS else None


def _gib(number: Decimal, unit: str, text: str) -> Decimal | None:
    """GB are powers of ten, as makers of disks and cards print them, and GiB of two."""
    if unit in ("g", "t", "m"):
        binary, decimal = (number * _BYTES[unit + end] / 2**30 for end in ("ib", "b"))
        two = f"'{text}' may be {binary:.6g} ({unit.upper()}iB) or {decimal:.6g} ({unit.upper()}B)"
        raise InputError(Problem(two, None, "write the number out"))
    return Decimal(_BYTES[unit]) / 2**30 if unit in _BYTES else None


def _modules_gib(number: Decimal, unit: str, text: str) -> Decimal | None:
    """Memory modules of 32 GB hold 32 GiB (JEDEC counts memory in powers of two), so that the units are the same."""
    return Decimal(_BYTES[f"{unit[0]}ib"]) / 2**30 if unit in _BYTES or unit in ("g", "t", "m") else None


def _kilowatts(number: Decimal, unit: str, text: str) -> Decimal | None:
    return Decimal(_WATTS[unit]) / 1000 if unit in _WATTS else None


def _count(number: Decimal, unit: str, text: str) -> Decimal | None:
    return Decimal(1) if unit == "" else Decimal(_POWERS[unit]) if unit in _POWERS else None


def _length(number: Decimal, unit: str, text: str) -> Decimal | None:
    """Tokens of a sequence, of which makers of models count 1024 to the k: 4k is 4096, 30k is 30720."""
    return Decimal(_KIBI[unit]) if unit in _KIBI else _count(number, unit, text)


_LARGE = "300M or 1.5B"
_READERS: Mapping[str, tuple[Callable[[Decimal, str, str], Decimal | None], str]] = {
    "request_rate": (_per_second, "20/s, 1000/min or 5000/h"),
    "_s": (_seconds, "500ms, 2s or 1m"),
    "hours": (_hours, "90m, 24h or 2d"),
    "host_memory_gib": (_modules_gib, "64GB or 2TB"),
    "_gib": (_gib, "80GiB or 80GB"),
    "_kw": (_kilowatts, "10kW"),
    "_len": (_length, "4k"),
    "_positions": (_length, "4k"),
}
"""How numbers of keys with these endings are read, and how such numbers are written."""
