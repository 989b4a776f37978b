"""Parts of an answer: what a step takes, or a memory holds, is a sum of them.

A part joins the function that computes it with the name, the formula and the source that an explanation prints, so
that none of the four can go with another. The parts of one answer stand in one tuple, in the order of the answer.

A function that returns a `Sum` says in passing what its numbers count: the explanation prints the very factors that
were multiplied, and no second equation has to keep up with the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array

Inputs = TypeVar("Inputs")
ABSENT: Array = np.zeros((1, 1, 1))  # what a part comes to that does not apply; broadcasts to any shape


class Factor(NamedTuple):
    """A number of a product, and what it counts; `divides` where the product is divided by it.

    name : empty for shares and switches; None where the number is no product of anything that has a name
    """

    value: ArrayLike
    name: str | None
    divides: bool = False


Products = tuple[tuple[Factor, ...], ...]
Terms = tuple[tuple[tuple[float, str, bool], ...], ...]
"""Products as they are shown: each factor a number, what it counts, and whether the product is divided by it."""


class Sum(Immutable):
    """An array that knows the products whose sum it is.

    Arithmetic is that of the value, in the order of the expression. Each step can be done to the products too, by the
    laws of algebra, and is when they are asked for: a search never asks. A plain array that is added stays without
    explanation; one that multiplies is a share or a switch.
    """

    __array_ufunc__ = None  # an array on the left leaves the operation to this class

    value: Array
    tell: Callable[[], Products]

    @cached_property
    def products(self) -> Products:
        return self.tell()

    def __add__(self, other: Sum | ArrayLike) -> Sum:
        other = as_sum(other)
        return Sum(self.value + other.value, lambda: self.products + other.products)

    __radd__ = __add__

    def __sub__(self, other: Sum | ArrayLike) -> Sum:
        other = as_sum(other)

        def tell() -> Products:
            taken = ((first._replace(value=-np.asarray(first.value)), *rest) for first, *rest in other.products)
            return (*self.products, *taken)

        return Sum(self.value - other.value, tell)

    def __rsub__(self, other: ArrayLike) -> Sum:
        return as_sum(other) - self

    def __mul__(self, other: Sum | ArrayLike) -> Sum:
        if not isinstance(other, Sum):
            return Sum(self.value * np.asarray(other), lambda: switched(self, other))
        return Sum(
            self.value * other.value,
            lambda: tuple((*one, *more) for one in self.products for more in other.products),
        )

    __rmul__ = __mul__

    def over(self, ranks: Array, name: str) -> Sum:
        """The sum divided by ranks."""
        among = Factor(ranks, name, divides=True)
        return Sum(self.value / ranks, lambda: tuple((*each, among) for each in self.products))

    def reshaped(self, function: Callable[[Array], Array]) -> Sum:
        """The sum with its arrays in another shape."""
        return Sum(
            function(self.value),
            lambda: tuple(
                tuple(one._replace(value=function(np.asarray(one.value))) for one in each) for each in self.products
            ),
        )

    def per(self, count: ArrayLike, name: str, each: str) -> Sum:
        """The same value told as so many of what each of them comes to."""
        return Sum(self.value, lambda: ((Factor(count, name), Factor(self.value / np.asarray(count), each)),))

    def at(self, *place: int) -> Terms:
        """The products that are not zero at a place of the value, with numbers; none where one has no explanation."""
        told = []
        for factors in self.products:
            numbers = [(number_at(factor.value, place), factor.name, factor.divides) for factor in factors]
            if any(number == 0.0 for number, _, _ in numbers):
                continue
            known = [(number, name, divides) for number, name, divides in numbers if name is not None]
            if len(known) < len(numbers):
                return ()
            telling = (each for each in known if each[0] != 1.0 or (each[1] and not each[2]))
            told.append(tuple(sorted(telling, key=lambda each: each[2])))
        return tuple(told)


Size = TypeVar("Size", Sum, "Array")


def named(value: ArrayLike, name: str | None) -> Sum:
    """A number with what it counts."""
    return Sum(np.asarray(value), lambda: ((Factor(value, name),),))


def as_sum(size: Sum | ArrayLike) -> Sum:
    """The sum, or an array as one that has no explanation."""
    return size if isinstance(size, Sum) else named(size, None)


def product(*factors: tuple[ArrayLike, str]) -> Sum:
    """Numbers multiplied in this order, each with what it counts."""
    first, *rest = (named(value, name) for value, name in factors)
    return math.prod(rest, start=first)


def over(size: Size, ranks: Array, name: str) -> Size:
    """Divide a sum by the ranks that share it."""
    return size.over(ranks, name) if isinstance(size, Sum) else size / ranks


def switched(size: Sum, on: ArrayLike) -> Products:
    """The products of a sum of which there is a share, or which is there where `on` is 1 and not where it is 0."""
    return tuple((*each, Factor(on, "")) for each in size.products)


def where(condition: ArrayLike, one: Sum | ArrayLike, other: Sum | ArrayLike) -> Sum:
    """One sum where the condition holds, else the other."""
    one, other, holds = as_sum(one), as_sum(other), np.asarray(condition)
    return Sum(np.where(holds, one.value, other.value), lambda: switched(one, holds) + switched(other, ~holds))


def smaller(one: Sum | ArrayLike, other: Sum | ArrayLike) -> Sum:
    """Return the smaller of two sums, the first where they are equal."""
    one, other = as_sum(one), as_sum(other)
    return where(one.value <= other.value, one, other)


def larger(one: Sum | ArrayLike, other: Sum | ArrayLike) -> Sum:
    """Return the larger of two sums, the first where they are equal."""
    one, other = as_sum(one), as_sum(other)
    return where(one.value >= other.value, one, other)


def value_of(size: Sum | Array) -> Array:
    """Return the array, whether it knows its products or not."""
    return size.value if isinstance(size, Sum) else size


def number_at(value: ArrayLike, place: tuple[int, ...]) -> float:
    """Return the number at a place of an array that broadcasts to the shape of the place."""
    array = np.asarray(value)
    own = place[len(place) - array.ndim :]
    return float(array[tuple(index if size > 1 else 0 for index, size in zip(own, array.shape, strict=True))])


def _always(_: object) -> bool:
    return True


class Part(Immutable, Generic[Inputs], eq=True):
    """One part: `function` turns the inputs that all parts of the answer share into seconds [s] or bytes [bytes].

    applies : whether inputs can have the part at all; else it is zero, and need not be computed
    """

    name: str
    formula: str
    source: str
    function: Callable[[Inputs], Sum | Array]
    applies: Callable[[Any], bool] = _always

    def __call__(self, inputs: Inputs) -> Array:
        return value_of(self.function(inputs))

    def terms(self, inputs: Inputs, *place: int) -> Terms:
        """The part as a sum of products, with its numbers at a place; empty where it is no such sum."""
        size = self.function(inputs)
        return size.at(*place) if isinstance(size, Sum) else ()


def part(
    name: str, formula: str, source: str, applies: Callable[[Any], bool] = _always
) -> Callable[[Callable[[Inputs], Sum | Array]], Part[Inputs]]:
    """Decorator that turns a function into the part that it computes."""

    def registered(function: Callable[[Inputs], Sum | Array]) -> Part[Inputs]:
        return Part(name, formula, source, function, applies)

    return registered


def computed(parts: Iterable[Part[Inputs]], inputs: Inputs) -> dict[str, Array]:
    """Name of each part -> what it comes to, in the order of the parts."""
    return {each.name: each(inputs) if each.applies(inputs) else ABSENT for each in parts}
