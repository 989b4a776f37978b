"""Frozen dataclasses behave as those of the standard library, which each case is held against."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from xe_sizer.frozen import frozen


@frozen
class Point:
    x: float
    y: float = 2.0
    names: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def twice(self) -> float:
        return 2 * self.x


@frozen
class Deep(Point):
    z: float = 3.0


@frozen(eq=True)
class Value:
    x: float
    y: float = 2.0


@dataclass(frozen=True)
class Standard:
    x: float
    y: float = 2.0


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"w": 2}), ((), {"y": 1}), ((), {"w": 1})]
)
def test_it_refuses_what_a_dataclass_refuses(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for made in (Standard, Value):
        with pytest.raises(TypeError):
            made(*values, **named)


@pytest.mark.parametrize(("values", "named"), [((1,), {}), ((1, 5), {}), ((1,), {"y": 4}), ((), {"y": 4, "x": 3})])
def test_it_takes_what_a_dataclass_takes(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    made, standard = Value(*values, **named), Standard(*values, **named)
    assert dataclasses.asdict(made) == dataclasses.asdict(standard)
    assert repr(made) == repr(standard).replace("Standard", "Value")


def test_it_cannot_be_changed_but_replaced() -> None:
    point = Point(1.0)
    with pytest.raises(FrozenInstanceError):
        point.x = 2.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert (replace(point, x=4.0).x, point.x, point.twice) == (4.0, 1.0, 2.0)
    assert [each.name for each in fields(Deep)] == ["x", "y", "names", "z"]
    assert Deep(1.0, z=5.0).z == 5.0


def test_factories_make_a_new_default_each_time() -> None:
    assert Point(1.0).names == {}
    assert Point(1.0).names is not Point(1.0).names


def test_equality_and_hash() -> None:
    assert Value(1.0) == Value(1.0) != Value(1.0, 3.0)
    assert Value(1.0) != Standard(1.0)
    assert len({Value(1.0), Value(1.0), Value(2.0)}) == 2
    assert Point(1.0) != Point(1.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Value([]))  # type: ignore[arg-type]


def test_it_travels_to_other_processes() -> None:
    point = pickle.loads(pickle.dumps(Value(1.0, 3.0)))
    assert point == Value(1.0, 3.0)
