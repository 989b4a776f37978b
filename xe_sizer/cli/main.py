"""The command `xe-sizer`: which commands exist, and what an invocation returns to the shell.

A command's module is imported when the command runs or help is asked for: start-up is what shell users feel.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from xe_sizer.cli.failures import CommandLine, exit_code_of
from xe_sizer.cli.streams import open_what_is_closed, write_stdout
from xe_sizer.cli.text import TextGroup, as_text
from xe_sizer.cli.written import written_as

COMMANDS = (
    "estimate",
    "plan",
    "serve",
    "compare",
    "sensitivity",
    "check",
    "import",
    "export",
    "profiles",
    "data",
    "validate",
    "calibrate",
    "render",
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
