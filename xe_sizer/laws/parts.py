"""Parts of an answer: what a step takes, or a memory holds, is a sum of them.

A part joins the function that computes it with the name, the formula and the source that an explanation prints, so
that none of the four can go with another. The parts of one answer stand in one tuple, in the order of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Array

Inputs = TypeVar("Inputs")


@frozen(eq=True)
class Part(Generic[Inputs]):
    """One part: `function` turns the inputs that all parts of the answer share into seconds [s] or bytes [bytes]."""

    name: str
    formula: str
    source: str
    function: Callable[[Inputs], Array]

    def __call__(self, inputs: Inputs) -> Array:
        return self.function(inputs)


def part(name: str, formula: str, source: str) -> Callable[[Callable[[Inputs], Array]], Part[Inputs]]:
    """Decorator that turns a function into the part that it computes."""

    def registered(function: Callable[[Inputs], Array]) -> Part[Inputs]:
        return Part(name, formula, source, function)

    return registered


def computed(parts: Iterable[Part[Inputs]], inputs: Inputs) -> dict[str, Array]:
    """Name of each part -> what it comes to, in the order of the parts."""
    return {each.name: each.function(inputs) for each in parts}
