"""The command `xe-sizer`: which commands exist, and what an invocation returns to the shell.

A command's module is imported when the command runs or help is asked for: start-up is what shell users feel.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from xe_sizer.cli.output import (
    one_line,
    open_what_is_closed,
    print_problems,
    silence_stdout,
    unwritten,
    write_stderr,
    write_stdout,
)
from xe_sizer.cli.text import TextGroup, as_text
from xe_sizer.errors import EXIT_BAD_INPUT, EXIT_DEFECT, EXIT_INTERRUPTED, EXIT_OK, InputError, Location, Problem
from xe_sizer.result.common import Answer, Written
from xe_sizer.version import __version__

# The one place that turns exceptions into messages on stderr and exit codes.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@dataclass
class CommandLine:
    """State of one command line that outlives its parsing."""

    debug: bool = False


def exit_code_of(command: Callable[[], Any], line: CommandLine) -> int:
    """Run `command`; its return value (None is 0) or what it raised becomes an exit code."""
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except InputError as error:
        print_problems(error.problems)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as left:  # typer leaves so after it installs or prints completion
        return left.code if isinstance(left.code, int) else EXIT_OK if left.code is None else EXIT_BAD_INPUT
    except BrokenPipeError:
        silence_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001  what nobody foresaw is said as such, with exit code 3
        # Errors of the option parser are told by their methods: its base class moved between typer's releases.
        if hasattr(error, "show") and hasattr(error, "format_message"):
            with suppress(OSError):
                error.show()
            return EXIT_BAD_INPUT
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            print_problems(unwritten(error).problems)
            return EXIT_BAD_INPUT
        return _report_defect(error, line)


def _report_defect(error: Exception, line: CommandLine) -> int:
    if line.debug:
        import traceback

        traceback.print_exception(error)
    what = one_line(f"{type(error).__name__}: {error}")
    write_stderr(f"xe-sizer: internal error: {what}. Please report it with the command line.")
    if not line.debug:
        write_stderr("  hint: 'xe-sizer --debug COMMAND ...' prints where it happened")
    return EXIT_DEFECT


# How an answer came about: the command line, the variables that it read, and the date.

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


COMMANDS = (
    "estimate",
    "plan",
    "serve",
    "compare",
    "sensitivity",
    "models",
    "calendar",
    "check",
    "import",
    "export",
    "profiles",
    "data",
    "validate",
    "calibrate",
    "measure",
    "render",
    "mcp",
)
_MODULES = {"import": "import_"}  # of commands that are words of Python
_HELP = "Sizes GPU infrastructure for large language models: does it fit, how many GPUs, how long?"
_EPILOG = "Exit codes: 0 fits and meets every limit, 1 does not, 2 bad input, 3 a defect of xe-sizer."


class LazyGroup(TextGroup):
    """A group whose commands live in modules of the same name, each with a typer app called `app`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"xe_sizer.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from xe_sizer.version import __version__

        write_stdout(f"xe-sizer {__version__}\n")
        raise typer.Exit


@app.callback()
def _group(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a defect.")] = False,
) -> None:
    ctx.obj.debug = bool(debug)


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code (docs/exit-codes.md); never raises."""
    line = CommandLine()
    command = typer.main.get_command(app)
    for parameter in command.params:  # those that install completion come after the group is built
        as_text(parameter)
    with written_as(arguments):
        return exit_code_of(
            lambda: command.main(list(arguments), prog_name="xe-sizer", standalone_mode=False, obj=line),
            line,
        )


def run() -> None:
    """Entry point of the installed command."""
    # A thread pool per core doubles numpy's start, and nothing here multiplies large matrices.
    open_what_is_closed()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()
    sys.exit(main(sys.argv[1:]))
