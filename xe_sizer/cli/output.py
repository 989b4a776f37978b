"""Where a report goes and how it may look there: stdout or a file, colour, width, encoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.frozen import frozen
from xe_sizer.report.options import Options
from xe_sizer.report.registry import DEFAULT, Format, format_of_ending, known_format, render
from xe_sizer.result.common import Answer

COLORS = ("auto", "always", "never")
_BOLD, _CYAN, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"


@frozen
class Output:
    """What the options --format, -o and --color ask for."""

    format: Format
    file: Path | None
    color: str

    def report(self, answer: Answer, **asked: Any) -> None:
        """Write the answer in the format; `asked` are fields of `Options`. Raises InputError: it cannot be written."""
        self.write(render(answer, self.format.name, self.options(**asked)))

    def options(self, **asked: Any) -> Options:
        """What the surroundings ask of a report, and what the caller does."""
        terminal = self.file is None and sys.stdout.isatty()
        return Options(
            color=self._colored(terminal),
            width=_columns() if terminal else None,
            encoding=(sys.stdout.encoding or "utf-8") if self.file is None else "utf-8",
            **asked,
        )

    def _colored(self, terminal: bool) -> bool:
        if self.color != "auto":
            return self.color == "always"
        return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> None:
        write_text(self.file, text)


def output_from(format_: str | None, file: str | None, color: str) -> Output:
    """Where to write and how; without a format the ending of the file says it, else it is a table.

    Raises InputError: no such format, ending or colour mode.
    """
    check_choice("--color", color, COLORS)
    path = file_from(file)
    if format_ is None and path is not None and path.suffix:
        return Output(format_of_ending(path.suffix), path, color)
    return Output(known_format(format_ or DEFAULT), path, color)


def file_from(file: str | None) -> Path | None:
    """The file that --output names; None for stdout."""
    return Path(file) if file and file != "-" else None


def write_text(file: Path | None, text: str) -> None:
    """Print, or put in place of the file all at once. Raises InputError if the file cannot be written."""
    if file is None:
        write_stdout(text)
    else:
        _write_file(file, text)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value in choices:
        return value
    hint = did_you_mean(value, choices) or f"one of {', '.join(choices)}"
    raise InputError(Problem(f"'{value}' is not a choice", Location(option), hint))


def write_stdout(text: str) -> None:
    """Write bytes: no platform may change line ends, and no terminal's encoding may raise."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


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


def write_stderr(line: str) -> None:
    encoding = sys.stderr.encoding or "utf-8"
    print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr)


def silence_stdout() -> None:
    """Send what is still to come to nowhere: the reader of the pipe has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _write_file(file: Path, text: str) -> None:
    try:
        if file.exists() and not file.is_file():  # /dev/stdout, a named pipe: nothing to replace
            file.write_text(text, encoding="utf-8")
        else:
            _replace(Path(os.path.realpath(file)), text)
    except OSError as error:
        raise InputError(Problem(f"cannot write: {error.strerror}", Location(str(file)))) from error


def _replace(file: Path, text: str) -> None:
    """Write beside `file` and rename: a reader sees the old file or the new one, never half."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
