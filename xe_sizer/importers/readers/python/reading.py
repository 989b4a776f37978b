"""What all files of one reading share: bounds, given values, calls that were met, and modules that were opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.importers.readers.python.evaluator import Evaluator
    from xe_sizer.importers.written import Written

MAX_STEPS = 100_000  # expressions and statements that are evaluated for one value, and parts of what they make
MAX_STEPS_OF_ALL = 1_000_000  # the same, for everything that a file is asked for
MAX_DEPTH = 20  # calls inside calls
MAX_MODULES = 50
MAX_CHARACTERS_OF_MODULES = 1_000_000  # all together
_MOST_NAMES = 1000  # of modules that are looked for


class Exhausted(Exception):  # noqa: N818
    """More steps than a configuration takes."""


class Reading:
    """Bounds and findings of one reading.

    given : values of variables that were passed by name; they win over assignments
    opened : opens the module of a dotted name where its file is at hand, else None
    """

    def __init__(self, given: Mapping[str, str], opened: Callable[[str, Reading], Evaluator | None]) -> None:
        self.given, self._opened = given, opened
        self.steps = MAX_STEPS
        self.of_all = MAX_STEPS_OF_ALL
        self.depth = 0
        self.characters = MAX_CHARACTERS_OF_MODULES
        self.calls: list[Written] = []
        self._modules: dict[str, Evaluator | None] = {}

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises Exhausted: there are no more."""
        self.steps -= steps
        self.of_all -= steps
        if self.steps < 0 or self.of_all < 0:
            raise Exhausted

    def start(self) -> None:
        """Begin with another value."""
        self.steps = MAX_STEPS

    def module(self, name: str) -> Evaluator | None:
        """A module by its dotted name, opened once; None where its file is not at hand, or is being opened."""
        opened = sum(each is not None for each in self._modules.values())
        if name not in self._modules and opened < MAX_MODULES and len(self._modules) < _MOST_NAMES:
            self._modules[name] = None
            self._modules[name] = self._opened(name, self)
        return self._modules.get(name)
