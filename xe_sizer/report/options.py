"""What a reader's surroundings ask of a report: colour, width, encoding, how deep to go."""

from __future__ import annotations

from collections.abc import Callable

from xe_sizer.frozen import frozen

BRIEF_LINES = 14
OPERATORS = "operators"
EXPLAINABLE = ("memory", "time", OPERATORS, "data", "sources")


@frozen
class Options:
    """`width` is the terminal's columns, None off a terminal: then nothing is wrapped or cut.

    `file` is the scenario file a report is about; annotations and test cases name it. `place` turns the name of a file
    into what a code host calls it. `worst` is how many of the largest errors are shown. `brief` keeps verdict and
    summary alone, at most BRIEF_LINES of a table.
    """

    color: bool = False
    width: int | None = None
    encoding: str = "utf-8"
    explain: tuple[str, ...] = ()
    file: str | None = None
    worst: int = 10
    place: Callable[[str], str] = str
    brief: bool = False
