"""Where reports go and how they may look there: stdout and files, formats, colour, width, encoding."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.immutable import Immutable
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

# The three standard streams, of which any may be closed, full or unable to show a character.

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
    """`file:line:column: message` of each problem on stderr, with a hint where it is not that of the one before."""
    colored = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    bold, cyan, reset = (_BOLD, _CYAN, _RESET) if colored else ("", "", "")
    said = None
    for problem in problems:
        place = one_line(str(problem.location)) if problem.location else "xe-sizer"
        write_stderr(f"{bold}{place}:{reset} {one_line(problem.message)}")
        if problem.hint and problem.hint != said:
            write_stderr(f"  {cyan}hint:{reset} {one_line(problem.hint)}")
        said = problem.hint


def one_line(text: str) -> str:
    from xe_sizer.report.format import clean

    return clean(text)


# How far a long search is: one line on a terminal's stderr, wiped when the answer comes.

QUIET_S = 1.0  # what takes less says nothing
OFTEN_S = 0.5
WIPE = "\r\033[K"


class Progress:
    """A line that is written over, from `QUIET_S` on and at most every `OFTEN_S`; none without a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._due = time.monotonic() + QUIET_S
        self._shown = False
        self._total = self._before = 0

    def layouts(self, considered: int) -> None:
        """`considered`: layouts that the search of one kind of GPU has seen; the next kind begins again at zero."""
        self._total += considered - self._before if considered >= self._before else considered
        self._before = considered
        self._say(f"{self._total:,} layouts tried")

    def plans(self, done: int, total: int) -> None:
        self._say(f"{done} of {total} plans")

    def bytes(self, done: int, total: int) -> None:
        """How much of some files has been read."""
        self._say(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB read" if done < total else "counting tokens")

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if self._terminal and now >= self._due:
            self._due, self._shown = now + OFTEN_S, True
            print(f"{WIPE}{text}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print(WIPE, end="", file=sys.stderr, flush=True)


# Files written whole or not at all, several of them together or none; and where a file stands in its repository.

_MOST_LINKS = 40  # as many as the kernel follows


def write_files(texts: Sequence[tuple[Path, str]]) -> None:
    """Write each text beside its file, then put all in place: a reader sees the old file or the new one, never half.

    Raises InputError: one cannot be written; then none is replaced.
    """
    with ExitStack() as stack:
        staged = []
        for file, text in texts:
            with _told(file):
                staged.append((file, _staged(file, text, stack)))
        for file, put_in_place in staged:
            with _told(file):
                put_in_place()


def in_repository(name: str) -> str:
    """The path of a file from the root of its repository, as a code host names it.

    Outside of any it starts at GITHUB_WORKSPACE or the working folder; what lies elsewhere keeps its name.
    """
    path = Path(os.path.normpath(Path.cwd() / name))
    roots = [folder for folder in path.parents if (folder / ".git").exists()][:1]
    roots += [Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()), Path.cwd()]
    inside = next((root for root in roots if path.is_relative_to(root)), None)
    return name if inside is None else path.relative_to(inside).as_posix()


def _staged(file: Path, text: str, stack: ExitStack) -> Callable[[], object]:
    """What puts the text in place, which lies beside the file by then; a device or a pipe is written to instead."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if file.exists() and not file.is_file():
        return partial(file.write_text, text, encoding="utf-8", errors="replace")
    target = _followed(file)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with temporary.open("x", encoding="utf-8", errors="replace", newline="") as out:
        stack.callback(temporary.unlink, missing_ok=True)
        out.write(text)
    return partial(temporary.replace, target)


def _followed(file: Path) -> Path:
    """Where the symbolic links of a file end, which need not exist. Raises OSError: they go in a circle."""
    for _ in range(_MOST_LINKS):
        if not file.is_symlink():
            return file
        file = file.parent / file.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Turns an OSError into bad input that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(Problem(f"cannot write: {error.strerror}", Location(str(file)))) from error


COLORS = ("auto", "always", "never")
LEAST_COLUMNS = 40  # no report is laid out narrower
_PLACE = Location("--output")


class Target(Immutable):
    """One report: its format, and the file that it goes to; None is stdout."""

    format: Format
    file: Path | None

    def options(self, color: str, **asked: Any) -> Options:
        """What the surroundings ask of the report, and what the caller does."""
        terminal = self.file is None and sys.stdout.isatty()
        shows_color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        columns, width = os.environ.get("COLUMNS", ""), None
        if terminal:
            width = _columns()
        elif self.file is None and columns.isdecimal() and int(columns):  # what is asked of output through a pipe
            width = max(int(columns), LEAST_COLUMNS)
        return Options(
            color=shows_color if color == "auto" else color == "always",
            width=width,
            encoding=(sys.stdout.encoding or "utf-8") if self.file is None else "utf-8",
            place=in_repository,
            **asked,
        )


class Output(Immutable):
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
    """Return the file that --output names; None for stdout."""
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


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
