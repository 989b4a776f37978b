"""`xe-sizer check`: many scenarios, one table, one exit code. The gate for CI."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.failures import print_problems
from xe_sizer.cli.options import (
    BatchFormatOption,
    ColorOption,
    ExitZeroOption,
    FileOption,
    ProfilesOption,
    given_scenario,
    profile_folders,
)
from xe_sizer.cli.output import gate, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_BAD_INPUT, InputError, Location, Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.batch import Batch, Outcome
from xe_sizer.report.registry import known_batch_format, render_batch
from xe_sizer.studies.answer import answer

app = typer.Typer(add_completion=False)
_HELP = """Answer every scenario, of training or of inference, and compare it with its own limits.

Bad scenarios do not stop the others. Exit code 2 if any input was bad, else 1 if any failed, else 0.
"""


@app.command("check", cls=TextCommand, help=_HELP)
def check_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Scenario files, or folders of *.yaml files."),
    ] = None,
    profiles: ProfilesOption = None,
    format_: BatchFormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_batch_format(target.format)
    if not files:
        raise InputError(Problem("a scenario file is missing", hint="xe-sizer check scenarios/*.yaml"))
    registry = Registry(profile_folders(profiles, os.environ))
    batch = Batch(tuple(_answer(path, registry) for path in _scenario_files(files)))
    for outcome in batch.outcomes:
        print_problems(outcome.problems)
    target.write(render_batch(batch, target.format, target.options()))
    return EXIT_BAD_INPUT if batch.invalid else gate(not batch.failed, exit_zero)


def _scenario_files(names: Iterable[str]) -> Iterator[Path]:
    """The files named, and all *.yaml below the folders named; a file named twice is checked once."""
    seen: set[Path] = set()
    for name in names:
        path = Path(name)
        below = sorted(file for file in path.rglob("*.yaml") if file.is_file()) if path.is_dir() else []
        for file in below or [path]:
            if file not in seen:
                seen.add(file)
                yield file


def _answer(path: Path, registry: Registry) -> Outcome:
    if path.is_dir():
        return Outcome(str(path), problems=(Problem("no *.yaml file below this folder", Location(str(path))),))
    try:
        return Outcome(str(path), answer(given_scenario(path, {}, os.environ, registry, asking=None), registry))
    except InputError as error:
        return Outcome(str(path), problems=error.problems)
