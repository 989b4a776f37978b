"""Fields of the Structs that files fill: what they take, names that a text may be, and their JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import msgspec

ALIASES = "aliases"  # key of a Meta's `extra`: other words for its values, or a function that lists them
RANGE = "range"  # key of a Meta's `extra`: how the range of a number is said, where the bounds alone say too little
NAMES = "names"  # key of a Meta's `extra`: a function that lists what a text may be
_LISTS: dict[str, Callable[[], tuple[str, ...]]] = {}  # these functions by what stands for them in a JSON Schema


class Field(msgspec.Struct, frozen=True):
    """A key that a Struct has, the attribute that it fills, and its type."""

    key: str
    name: str
    type: Any
    required: bool


def named(names: Callable[[], tuple[str, ...]], aliases: Callable[[], Mapping[str, str]] | None = None) -> msgspec.Meta:
    """Makes text one of the names that are known when it is read, as a Literal does with fixed names.

    aliases : what else people call them
    """
    key = f"{names.__module__}.{names.__name__}"
    _LISTS[key] = names
    return msgspec.Meta(extra={NAMES: names, ALIASES: aliases or dict}, extra_json_schema={"enum": key})


def or_else(**aliases: object) -> msgspec.Meta:
    """Other words for the options of a Literal, without separators."""
    return msgspec.Meta(extra={ALIASES: aliases})


def json_schema(type_: Any, within: Sequence[type] = ()) -> dict[str, Any]:
    """JSON Schema of a Struct, with the names that are known now where a key takes names.

    within : what may stand where the type has a protocol
    """
    if not within:
        return cast(dict[str, Any], _with_names(msgspec.json.schema(type_)))
    either = {"anyOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in within]}
    place = "#/$defs/{name}"
    (own, *_), parts = msgspec.json.schema_components(
        (type_, *within), schema_hook=lambda _: either, ref_template=place
    )
    return cast(dict[str, Any], _with_names({**own, "$defs": parts}))


def _with_names(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_names(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    listed = schema.get("enum")
    names = {"enum": list(_LISTS[listed]())} if isinstance(listed, str) else {}
    return {key: _with_names(item) for key, item in schema.items()} | names


def without_metas(type_: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """A type without its annotations, and these; text that must be a known name becomes a Literal of the names."""
    if get_origin(type_) is not Annotated:
        return type_, ()
    metas = tuple(meta for meta in type_.__metadata__ if isinstance(meta, msgspec.Meta))
    names = names_of(metas)
    return Literal[names] if names else type_.__origin__, metas


def names_of(metas: Iterable[msgspec.Meta]) -> tuple[str, ...]:
    """Names that a text may be; none where it may be any text."""
    return next((tuple(meta.extra[NAMES]()) for meta in metas if meta.extra and NAMES in meta.extra), ())


def description_of(type_: Any) -> str | None:
    return next((meta.description for meta in without_metas(type_)[1] if meta.description), None)


def is_struct(base: Any) -> bool:
    return isinstance(base, type) and issubclass(base, msgspec.Struct)


def struct_in(type_: Any) -> Any:
    """The Struct that a type is, or that a value of it may be; the type itself where there is none."""
    if get_origin(type_) is None:
        return type_
    found = (struct_in(arm) for arm in get_args(type_))
    return next((arm for arm in found if is_struct(arm)), type_)


@cache
def fields_of(struct: Any) -> dict[str, Field]:
    """Fields of a Struct by the key that files have; msgspec reads all annotations anew at every call."""
    fields = msgspec.structs.fields(struct)
    return {f.encode_name: Field(f.encode_name, f.name, f.type, f.required) for f in fields}


def homes(type_: Any, path: tuple[str, ...] = (), depth: int = 0) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every known key with the sections above it, to say where a misplaced key belongs."""
    base = without_metas(type_)[0]
    if is_struct(base) and depth < 4:
        for field in fields_of(base).values():
            yield path, field.key
            for arm in get_args(field.type) or (field.type,):
                yield from homes(arm, (*path, field.key), depth + 1)
