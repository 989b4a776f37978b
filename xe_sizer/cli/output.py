"""Where reports go and how they may look there: stdout and files, formats, colour, width, encoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xe_sizer.cli.files import in_repository, write_files
from xe_sizer.cli.streams import write_stdout
from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.frozen import frozen
from xe_sizer.report.document import Options
from xe_sizer.report.registry import (
    DEFAULT,
    Format,
    format_names,
    format_of_ending,
    known_endings,
    known_format,
    render,
)
from xe_sizer.result.common import Answer

COLORS = ("auto", "always", "never")
LEAST_COLUMNS = 40  # no report is laid out narrower
_PLACE = Location("--output")


@frozen
class Target:
    """One report: its format, and the file that it goes to; None is stdout."""

    format: Format
    file: Path | None

    def options(self, color: str, **asked: Any) -> Options:
        """What the surroundings ask of the report, and what the caller does."""
        terminal = self.file is None and sys.stdout.isatty()
        return Options(
            color=_colored(color, terminal),
            width=_columns() if terminal else _asked_columns() if self.file is None else None,
            encoding=(sys.stdout.encoding or "utf-8") if self.file is None else "utf-8",
            place=in_repository,
            **asked,
        )


@frozen
class Output:
    """What the options --format, -o and --color ask for: any number of files, and at most one report on stdout."""

    targets: tuple[Target, ...]
    color: str

    @property
    def whole(self) -> bool:
        """Whether some report shows everything that the answer has."""
        return any(target.format.whole for target in self.targets)

    @property
    def details(self) -> bool:
        """Whether some report shows more than verdicts."""
        return any(target.format.details for target in self.targets)

    def report(self, answer: Answer, **asked: Any) -> None:
        """Write the answer everywhere; `asked` are fields of `Options`. Raises InputError: it cannot be written."""
        texts = [
            (target.file, render(answer, target.format.name, target.options(self.color, **asked)))
            for target in self.targets
        ]
        write_texts(texts)


def write_texts(texts: Iterable[tuple[Path | None, str]]) -> None:
    """Files first, all of them or none, then stdout (None). Raises InputError: one cannot be written."""
    texts = tuple(texts)
    write_files([(file, text) for file, text in texts if file is not None])
    for file, text in texts:
        if file is None:
            write_stdout(text)


def output_from(format_: str | None, files: Sequence[str] | None, color: str) -> Output:
    """Where to write, and how.

    The ending of a file says its format, or a word before it (`markdown:FILE`). `format_`, else a table, is what stdout
    shows, and files whose names say nothing. Stdout shows nothing where a file has that format.

    Raises InputError: no such format, ending or colour mode, a file that is named twice.
    """
    check_choice("--color", color, COLORS)
    chosen = None if format_ is None else known_format(format_)
    targets = [_target(name, chosen) for name in files or ()]
    beside = chosen or known_format(DEFAULT)
    if all(target.format.name != beside.name and target.file is not None for target in targets):
        targets.append(Target(beside, None))
    _named_once(targets)
    return Output(tuple(targets), color)


def _target(text: str, chosen: Format | None) -> Target:
    """What one -o asks for. Raises InputError: it names no file, or no format has the ending."""
    word, colon, rest = text.partition(":")
    if colon and word in format_names():
        return Target(known_format(word), file_from(_named(rest, text)))
    file = file_from(_named(text, text))
    if file and file.name.startswith(".") and file.name.lower() in known_endings():  # else no format need be loaded
        raise InputError(Problem(f"'{text}' is an ending without a name", _PLACE, f"as in sizing{file.name}"))
    ending = file.suffix.lower() if file else ""
    if not ending or (chosen and (ending in chosen.endings or ending not in known_endings())):
        return Target(chosen or known_format(DEFAULT), file)
    return Target(format_of_ending(ending), file)


def _named(name: str, text: str) -> str:
    """The name itself. Raises InputError: it is empty, as where a variable of the shell is not set."""
    if name.strip():
        return name
    word = f"behind '{text.strip()}' " if text.strip() else ""
    raise InputError(Problem(f"the name of the file {word}is empty", _PLACE, "- is stdout"))


def _named_once(targets: Iterable[Target]) -> None:
    seen: set[str] = set()
    for target in targets:
        name = str(target.file or "stdout")
        if name in seen:
            raise InputError(Problem(f"{name} is named twice", _PLACE, "each report needs a file of its own"))
        seen.add(name)


def file_from(file: str) -> Path | None:
    """The file that --output names; None for stdout."""
    return Path(file) if file != "-" else None


def one_file(files: Sequence[str] | None) -> Path | None:
    """Where a command writes that has one text to write; None for stdout. Raises InputError: several files."""
    if files and len(files) > 1:
        raise InputError(Problem("this command writes one file", _PLACE))
    return file_from(_named(files[0], files[0])) if files else None


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value in choices:
        return value
    hint = did_you_mean(value, choices) or f"one of {', '.join(choices)}"
    raise InputError(Problem(f"'{value}' is not a choice", Location(option), hint))


def _colored(color: str, terminal: bool) -> bool:
    if color != "auto":
        return color == "always"
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _asked_columns() -> int | None:
    """The width that COLUMNS asks of output that goes through a pipe; None where it asks nothing."""
    asked = os.environ.get("COLUMNS", "")
    return max(int(asked), LEAST_COLUMNS) if asked.isdecimal() and int(asked) else None


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
