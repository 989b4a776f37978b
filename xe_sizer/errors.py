"""What users can get wrong, where it stands, and what to write instead.

Exit codes (docs/exit-codes.md): 0 fits, 1 does not fit or misses a limit, 2 bad input (an `InputError`),
3 a defect of xe-sizer (any other exception that reaches the command line).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from xe_sizer.immutable import Immutable

T = TypeVar("T")
EXIT_OK = 0
EXIT_DOES_NOT_FIT = 1
EXIT_BAD_INPUT = 2
EXIT_DEFECT = 3
EXIT_INTERRUPTED = 130  # as shells do: 128 + SIGINT
MOST_ALIKE = 20  # problems of a kind that are told
_NAMES_AND_NUMBERS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d+""")
SHORTEST_PART = 3  # letters from which on a part of a name counts as an abbreviation


class Location(Immutable, eq=True):
    """A place in a file (line and column count from 1), or the name of a flag or environment variable."""

    name: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.name, *(str(part) for part in (self.line, self.column) if part is not None)]
        return ":".join(parts)


Where = Location | Callable[[], Location] | None
"""A place, or what finds it: only problems need it, and to find it a file is read once more."""


Hint = str | Callable[[], str | None] | None


def place_of(where: Where) -> Location | None:
    return where() if callable(where) else where


class Problem(Immutable, eq=True):
    """One thing that is wrong with the input, or a count of what is alike."""

    message: str
    location: Location | None = None
    hint: str | None = None
    count: int = 1

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class ProblemList:
    """Problems as they are told: the first MOST_ALIKE that differ in names and numbers alone, and how many more.

    What is not told is not looked for: places and hints may be functions.
    """

    def __init__(self) -> None:
        self._told: list[Problem | str] = []  # a problem, or the kind of those that are counted from here on
        self._counts: Counter[str] = Counter()
        self._places: dict[str, Location | None] = {}

    def add(self, message: str, where: Where = None, hint: Hint = None, count: int = 1) -> None:
        kind = _NAMES_AND_NUMBERS.sub("", message)
        self._counts[kind] += 1
        if self._counts[kind] <= MOST_ALIKE:
            self._told.append(Problem(message, place_of(where), hint() if callable(hint) else hint, count))
        elif kind not in self._places:
            self._places[kind] = place_of(where)
            self._told.append(kind)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple([self._more(each) if isinstance(each, str) else each for each in self._told])

    def _more(self, kind: str) -> Problem:
        count = self._counts[kind] - MOST_ALIKE
        return Problem(f"and {count:,} more such problem{'s' if count > 1 else ''}", self._places[kind], count=count)


class InputError(Exception):
    """Input that cannot be answered; carries every problem found, not only the first, but few that are alike."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        told = ProblemList()
        for each in (problems,) if isinstance(problems, Problem) else problems:
            told.add(each.message, each.location, each.hint, each.count)
        self.problems = told.problems
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Problem, ...]]]:
        """As other processes send it back."""
        return InputError, (self.problems,)


@contextmanager
def collecting(problems: list[Problem]) -> Iterator[None]:
    """Adds what is wrong in the block to the list and goes on after it, so that all problems are told together."""
    try:
        yield
    except InputError as error:
        problems += error.problems


def attempt(make: Callable[..., T], *arguments: object) -> T | InputError:
    """What a function makes of its arguments, or what is wrong with them."""
    try:
        return make(*arguments)
    except InputError as error:
        return error


def did_you_mean(word: str, known: Iterable[str], limit: int = 3) -> str | None:
    """A hint that names the nearest known words, or None when nothing is near.

    Of names that are alike those come first that have the same numbers: 70b is nearer to 70b than to 405b.
    """
    import difflib

    lowered = {name.lower(): name for name in known}
    part = word.lower()
    inside = [name for name in lowered if len(part) >= SHORTEST_PART and part in name]
    begun = sorted(inside, key=lambda name: not name.startswith(part))
    alike = begun or _begun_nearly_so(part, lowered) or difflib.get_close_matches(part, lowered, 4 * limit, 0.6)

    def numbers(name: str) -> set[str]:
        return set(re.findall(r"[a-z]*\d[a-z0-9.]*", name))  # with the letters around them

    near = sorted(alike, key=lambda name: -len(numbers(part) & numbers(name)))[:limit]
    return "did you mean " + " or ".join(f"'{lowered[name]}'" for name in near) + "?" if near else None


def _begun_nearly_so(part: str, names: Collection[str]) -> list[str]:
    """Names whose part before the first hyphen has a number and is nearly `part`: h1000 is near all of h100-..."""
    import difflib

    heads = {name.partition("-")[0] for name in names if "-" in name}
    numbered = [head for head in heads if any(map(str.isdigit, head)) and head not in names]
    near = difflib.get_close_matches(part, sorted(numbered), n=1, cutoff=0.8)
    return [name for name in names if near and name.startswith(f"{near[0]}-")]


def file_order(problem: Problem) -> tuple[int, int]:
    """Sort key: by line and column; problems without a line come first."""
    place = problem.location
    return (place.line or 0, place.column or 0) if place else (0, 0)
