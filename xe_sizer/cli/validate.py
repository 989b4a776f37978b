"""`xe-sizer validate`: predictions against measurements, published or your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.command import Invocation, answering
from xe_sizer.cli.output import check_choice, print_problems
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.evidence.records import SHIPPED
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.report.document import Options
from xe_sizer.result.accuracy import QUANTITIES

app = typer.Typer(add_completion=False)
_HELP = """Predict measured runs and show how far off the predictions are.

A record leaves out what its source did not state; the stack's defaults fill the gap, and the report says so.
Without FILE the records that ship with xe-sizer are predicted.
"""
RUNS_HELP = "Measurement records (YAML lists, JSON Lines, folders of them); logs and CSV exports, with --scenario."
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario", metavar="FILE", help="The job whose logs or exports (.log, .csv, ...) are among the files."
    ),
]
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE...", help=RUNS_HELP),
]
OnlyOption = Annotated[str | None, typer.Option("--only", metavar="|".join(QUANTITIES), help="Only this quantity.")]
WorstOption = Annotated[
    str | None, typer.Option("--worst", metavar="N", help=f"Records with the largest errors ({Options().worst}).")
]


StackOption = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME|FILE",
        help="Predict runs of training with this stack, for example the file that calibrate wrote, not with their own.",
    ),
]


@app.command("validate", cls=TextCommand, help=_HELP)
@answering(without=("download", "brief", "explain", "exit_zero"))
def validate_command(
    *,
    files: FilesArgument = None,
    only: OnlyOption = None,
    worst: WorstOption = None,
    stack: StackOption = None,
    scenario: ScenarioOption = None,
    how: Invocation,
) -> int:
    quantities = QUANTITIES if only is None else (check_choice("--only", only, QUANTITIES),)
    shown = _count(worst)
    if stack is not None:
        load_stack(stack, Location("--stack"))
    from xe_sizer.evidence.logs import read_runs
    from xe_sizer.evidence.predict import validate

    folders = how.registry.user_folders
    read = read_runs([Path(file) for file in files or [str(SHIPPED)]], Path(scenario) if scenario else None, folders)
    print_problems(read.notes)

    return how.write(validate(read.records, quantities, stack, folders), worst=shown)


def _count(text: str | None) -> int:
    if text is None:
        return Options().worst
    if not text.strip().isdecimal():
        raise InputError(Problem(f"'{text}' is not a number of records", Location("--worst"), "for example --worst 20"))
    return int(text)
