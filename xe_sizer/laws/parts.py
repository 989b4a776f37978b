"""Parts of an answer: what a step takes, or a memory holds, is a sum of them.

A part joins the function that computes it with the name, the formula and the source that an explanation prints, so
that none of the four can go with another. The parts of one answer stand in one tuple, in the order of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array

Inputs = TypeVar("Inputs")
ABSENT: Array = np.zeros((1, 1, 1))  # what a part comes to that does not apply; broadcasts to any shape


class Factor(Immutable):
    """A number of a product, and what it counts; `divides` where the product is divided by it."""

    value: float
    name: str
    divides: bool = False


Terms = tuple[tuple[Factor, ...], ...]
"""A sum of products: what a part comes to, with the numbers put in."""


def product_of(term: Iterable[Factor]) -> float:
    """The value of one product."""
    return math.prod(1.0 / factor.value if factor.divides else factor.value for factor in term)


def _always(_: object) -> bool:
    return True


class Part(Immutable, Generic[Inputs], eq=True):
    """One part: `function` turns the inputs that all parts of the answer share into seconds [s] or bytes [bytes].

    applies : whether inputs can have the part at all; else it is zero, and need not be computed
    """

    name: str
    formula: str
    source: str
    function: Callable[[Inputs], Array]
    applies: Callable[[Any], bool] = _always

    def __call__(self, inputs: Inputs) -> Array:
        return self.function(inputs)


def part(
    name: str, formula: str, source: str, applies: Callable[[Any], bool] = _always
) -> Callable[[Callable[[Inputs], Array]], Part[Inputs]]:
    """Decorator that turns a function into the part that it computes."""

    def registered(function: Callable[[Inputs], Array]) -> Part[Inputs]:
        return Part(name, formula, source, function, applies)

    return registered


def computed(parts: Iterable[Part[Inputs]], inputs: Inputs) -> dict[str, Array]:
    """Name of each part -> what it comes to, in the order of the parts."""
    return {each.name: each.function(inputs) if each.applies(inputs) else ABSENT for each in parts}
