"""Where a report goes and how it may look there: stdout or a file, colour, width, encoding."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from xe_sizer.cli.failures import silence_stdout
from xe_sizer.errors import EXIT_DOES_NOT_FIT, EXIT_OK, InputError, Location, Problem, did_you_mean
from xe_sizer.report.options import EXPLAINABLE, Options

COLORS = ("auto", "always", "never")
DEFAULT_FORMAT = "table"
FORMAT_OF_ENDING = {
    ".json": "json", ".csv": "csv", ".md": "markdown", ".html": "html", ".xml": "junit", ".yaml": "yaml",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Output:
    """What the options --format, -o and --color ask for."""

    format: str
    file: Path | None
    color: str

    def options(self, explain: tuple[str, ...] = (), about: str | None = None) -> Options:
        """Surroundings for a renderer; `about` is the scenario file the report is about."""
        terminal = self.file is None and sys.stdout.isatty()
        return Options(
            color=self._colored(terminal),
            width=_columns() if terminal else None,
            encoding=(sys.stdout.encoding or "utf-8") if self.file is None else "utf-8",
            explain=explain,
            file=about,
        )

    def _colored(self, terminal: bool) -> bool:
        if self.color != "auto":
            return self.color == "always"
        return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> None:
        """Print, or put in place of the file all at once. Raises InputError if the file cannot be written."""
        if self.file is None:
            write_stdout(text)
        else:
            _write_file(self.file, text)


def output_from(format_: str | None, file: str | None, color: str) -> Output:
    """Where to write and how; without a format the ending of the file says it, else it is a table.

    Raises InputError for a colour mode that does not exist; formats are checked by who knows them.
    """
    check_choice("--color", color, COLORS)
    path = Path(file) if file and file != "-" else None
    inferred = FORMAT_OF_ENDING.get(path.suffix.lower()) if path else None
    return Output(format_ or inferred or DEFAULT_FORMAT, path, color)


def check_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    for topic in topics:
        check_choice("--explain", topic, EXPLAINABLE)
    return topics


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value in choices:
        return value
    hint = did_you_mean(value, choices) or f"one of {', '.join(choices)}"
    raise InputError(Problem(f"'{value}' is not a choice", Location(option), hint))


def known_format(name: str, formats: tuple[str, ...]) -> str:
    """The format's name. Raises InputError if it is none of these."""
    if name not in formats:
        hint = did_you_mean(name, formats) or f"one of {', '.join(formats)}"
        raise InputError(Problem(f"there is no format '{name}' here", Location("--format"), hint))
    return name


def gate(ok: bool, exit_zero: bool) -> int:
    """Exit code of an answer: 1 for a no, unless the caller asked for 0."""
    return EXIT_OK if ok or exit_zero else EXIT_DOES_NOT_FIT


def write_stdout(text: str) -> None:
    """Write bytes: no platform may change line ends, and no terminal's encoding may raise."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence_stdout()


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
