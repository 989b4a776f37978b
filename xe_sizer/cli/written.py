"""How an answer came about: the command line, the variables that it read, and the date."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.result.common import Answer, Written
from xe_sizer.version import __version__

A = TypeVar("A", bound=Answer)
PROGRAM = "xe-sizer"
VARIABLES = "XE_SIZER_"  # how the names of those begin that change an answer
EPOCH = "SOURCE_DATE_EPOCH"  # https://reproducible-builds.org/specs/source-date-epoch/
WRITING = ("--format", "-f", "--output", "-o", "--color")
WITH_VALUE = ("--format=", "-f", "--output=", "-o", "--color=")  # -fjson
_ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


@contextmanager
def written_as(arguments: Sequence[str]) -> Iterator[None]:
    """Answers inside come from a command line with these arguments."""
    token = _ARGUMENTS.set(tuple(arguments))
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


def stamped(answer: A) -> A:
    """The answer with how it came about. Raises InputError: SOURCE_DATE_EPOCH is no time."""
    from msgspec.structs import replace

    return replace(answer, written=Written(_command(), _date(), __version__))


def _command() -> str:
    """What repeats the answer, as a shell takes it; how and where it was written is no part of it."""
    import shlex

    read = [f"{name}={shlex.quote(value)}" for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)]
    return " ".join([*read, shlex.join([PROGRAM, *_asked(_ARGUMENTS.get())])])


def _asked(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments without those that say how and where to write."""
    given = iter(arguments)
    for argument in given:
        if argument in WRITING:
            next(given, None)
        elif not argument.startswith(WITH_VALUE):
            yield argument


def _date() -> str:
    """Today, or the day that SOURCE_DATE_EPOCH names, so that a report can be made again to the byte."""
    from datetime import UTC, datetime

    given = os.environ.get(EPOCH)
    try:
        at = datetime.now(UTC) if given is None else datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError) as error:
        message = f"'{given}' is not a time in whole seconds since 1970"
        raise InputError(Problem(message, Location(EPOCH))) from error
    return at.date().isoformat()
