"""The three standard streams, of which any may be closed, full or unable to show a character."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

from xe_sizer.errors import InputError, Location, Problem

_BOLD, _CYAN, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"
_STDOUT = "stdout"


def open_what_is_closed() -> None:
    """Put the null device where the caller closed a standard stream (`2>&-`), before any file takes its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace"))


def write_stdout(text: str) -> None:
    """Write bytes: no platform may change line ends, and no terminal's encoding may raise.

    Raises InputError: the disk behind it is full, for example.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        raise unwritten(error) from error


def unwritten(error: Exception) -> InputError:
    """What to say where stdout takes no more; what is still to come goes nowhere."""
    silence_stdout()
    return InputError(Problem(f"cannot write: {getattr(error, 'strerror', error)}", Location(_STDOUT)))


def silence_stdout() -> None:
    """Send what is still to come to nowhere: the reader of the pipe has left, or the disk is full."""
    _silence(sys.stdout)


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_stderr(line: str) -> None:
    """One line for people. Where stderr takes nothing, the exit code still tells.

    What stays in its buffer would fail once more when Python ends, and make the exit code 120.
    """
    encoding = sys.stderr.encoding or "utf-8"
    try:
        print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr, flush=True)
    except OSError:
        with suppress(OSError):
            _silence(sys.stderr)


def print_problems(problems: Iterable[Problem]) -> None:
    """`file:line:column: message` and a hint line for each problem, on stderr."""
    colored = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    bold, cyan, reset = (_BOLD, _CYAN, _RESET) if colored else ("", "", "")
    for problem in problems:
        place = one_line(str(problem.location)) if problem.location else "xe-sizer"
        write_stderr(f"{bold}{place}:{reset} {one_line(problem.message)}")
        if problem.hint:
            write_stderr(f"  {cyan}hint:{reset} {one_line(problem.hint)}")


def one_line(text: str) -> str:
    from xe_sizer.report.format import clean

    return clean(text)
