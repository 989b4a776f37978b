"""The base of all records inside the tool: cheap to define, to make and to read, with room for cached properties."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar, dataclass_transform, overload

import msgspec

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(msgspec.field,))
class Immutable(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A record is compared by identity, since most hold arrays; a class with `eq=True` compares type and values.

    `msgspec.structs.replace`, `asdict` and `fields` work on it. A replaced record computes its cached properties anew.
    """


class cached_unless_self(cached_property[T]):  # noqa: N801  named as its base
    """A cached property that may be the record itself, which it does not keep.

    A record that refers to itself would hold its arrays until garbage is looked for, which a command never does.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> cached_unless_self[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> cached_unless_self[T] | T:
        if instance is None:
            return self
        value = self.func(instance)
        if value is not instance and not (isinstance(value, tuple) and value[0] is instance):
            vars(instance)[self.func.__name__] = value
        return value
