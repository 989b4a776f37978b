"""Lengths of prompts and responses in the log of a rollout: JSON Lines or CSV, a row for each response."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xe_sizer.datasets.files import decoded
from xe_sizer.errors import InputError, Location, Problem, ProblemList
from xe_sizer.profiles.text import MOST_LOG_BYTES, read_text

Lengths = NDArray[np.float64]
WORDS = ("tokens", "length", "len", "lengths")
PROMPTS = tuple(f"{name}_{word}" for name in ("prompt", "input", "query") for word in WORDS)
RESPONSES = tuple(
    f"{name}_{word}" for name in ("response", "completion", "output", "answer", "generation") for word in WORDS
)
CSV = ".csv"


def rollout_lengths(path: Path) -> tuple[Lengths, Lengths]:
    """Tokens of the prompts that the log tells, and of all its responses; a length may be a list, one for each of many.

    Raises
    ------
    InputError : no such file, no text, a row without the length of a response, a length that is no number, no rows
    """
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}"))
    problems = ProblemList()
    prompts, responses = list[float](), list[float]()
    for line, row in _rows(path, problems):
        where = Location(str(path), line)
        told = _length(row, RESPONSES, problems, where)
        prompts += _length(row, PROMPTS, problems, where) or []
        responses += told or []
        if told is None:
            problems.add("the row has no length of a response", where, f"name it {RESPONSES[0]} or {RESPONSES[1]}")
    if problems.problems:
        raise InputError(problems.problems)
    if not responses:
        raise InputError(Problem("no rows", Location(str(path))))
    return np.asarray(prompts), np.asarray(responses)


def _length(row: Any, names: tuple[str, ...], problems: ProblemList, where: Location) -> list[float] | None:
    """The first of the lengths by these names, one or several; None where the row has none."""
    given = row if isinstance(row, dict) else {}
    name = next((one for one in names if given.get(one) not in (None, "")), None)
    if name is None:
        return None
    try:
        return _numbers(given[name])
    except (TypeError, ValueError):
        problems.add(f"'{name}' is no number of tokens: {given[name]!r}", where)
        return []


def _rows(path: Path, problems: ProblemList) -> Iterator[tuple[int, Any]]:
    """Rows with the numbers of their lines."""
    if path.suffix.lower() == CSV:
        reader = csv.DictReader(io.StringIO(read_text(path, MOST_LOG_BYTES), newline=""))
        for row in reader:
            yield reader.line_num, row
        return
    with path.open("rb") as binary:
        for number, line in enumerate(binary, start=1):
            if line.strip():
                try:
                    yield number, decoded(line)
                except ValueError as error:
                    problems.add(str(error), Location(str(path), number))


def _numbers(value: Any) -> list[float]:
    """One length or several. Raises TypeError or ValueError."""
    given = value if isinstance(value, list) else [value]
    found = [float(one) for one in given if not isinstance(one, bool)]
    if len(found) < len(given) or not all(0 <= one < np.inf for one in found):
        raise ValueError
    return found
