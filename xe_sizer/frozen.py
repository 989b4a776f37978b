"""Frozen dataclasses that take next to no time to define.

`dataclasses` writes source for every method of every class and compiles it, which for all classes of an estimate takes
as long as importing numpy. Here all classes share the same few methods. `fields`, `replace` and `asdict` of
`dataclasses` work as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T", bound=type)


@overload
def frozen(cls: T, /) -> T: ...
@overload
def frozen(*, eq: bool) -> Callable[[T], T]: ...


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, eq: bool = False) -> Any:
    """Make `cls` a frozen dataclass, compared by identity unless `eq` is true: then by type and values."""
    if cls is None:
        return lambda decorated: _made(decorated, eq)
    return _made(cls, eq)


def _made(cls: Any, eq: bool) -> Any:
    made: Any = dataclass(init=False, repr=False, eq=False)(cls)
    own = fields(made)
    names = tuple([each.name for each in own])
    methods: dict[str, Callable[..., Any]] = {"__setattr__": _refused, "__delattr__": _refused}
    methods["__repr__"] = lambda self: f"{made.__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"
    if eq:
        methods |= _comparison(names)
    made.__init__ = _initialiser(made, own)
    for name, method in methods.items():
        if name not in vars(made):  # a class may say itself how it reads
            setattr(made, name, method)
    return made


def _initialiser(cls: Any, own: tuple[Field[Any], ...]) -> Callable[..., None]:
    """What `__init__` of a dataclass does: values by place or by name, defaults, then `__post_init__`."""
    names = tuple([each.name for each in own])
    placed = tuple([each.name for each in own if not each.kw_only])
    known = frozenset(names)
    defaults = {each.name: each.default for each in own if each.default is not MISSING}
    factories = {each.name: each.default_factory for each in own if each.default_factory is not MISSING}
    after = getattr(cls, "__post_init__", None)

    def initialise(self: Any, /, *values: Any, **named: Any) -> None:
        if after is None and not values and named.keys() == known:  # how nearly all are made
            self.__dict__.update(named)
            return
        given = {**dict(zip(placed, values, strict=False)), **named} if values else named
        found = {**defaults, **given}
        if found.keys() != known:
            found.update({name: make() for name, make in factories.items() if name not in found})
        if found.keys() != known or len(given) < len(values) + len(named):
            raise TypeError(f"{cls.__name__}() takes {', '.join(names)}, each once; not {', '.join(given)}")
        self.__dict__.update(found)
        if after is not None:
            after(self)

    return initialise


def _comparison(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Equality and hash by values, of instances of one class."""

    def values(self: Any) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in names])

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


def _refused(self: Any, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"'{name}' of a {type(self).__name__} cannot be changed")
