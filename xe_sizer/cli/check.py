"""`xe-sizer check`: many scenarios, one table, one exit code. The gate for CI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.invocation import Invocation, answering
from xe_sizer.cli.streams import print_problems
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.result.check import Checked, answered, check_result, refused
from xe_sizer.result.common import Sized
from xe_sizer.scenario.read import Given, serves

app = typer.Typer(add_completion=False)
_HELP = """Answer every scenario, of training or of inference, and compare it with its own limits.

Bad scenarios do not stop the others. Exit code 2 if any input was bad, else 1 if any failed, else 0.
"""
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Scenario files, or folders of *.yaml files."),
]


@app.command("check", cls=TextCommand, help=_HELP)
@answering()
def check_command(*, files: FilesArgument = None, how: Invocation) -> int:
    if not files:
        raise InputError(Problem("a scenario file is missing", hint="xe-sizer check scenarios/*.yaml"))
    return how.write(check_result(tuple(_checked(path, how) for path in _scenario_files(files))))


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


def _checked(path: Path, how: Invocation) -> Checked:
    try:
        if path.is_dir():
            raise InputError(Problem("no *.yaml file below this folder", Location(str(path))))
        return answered(str(path), _answer(how.given(None, str(path), {}), how))
    except InputError as error:
        print_problems(error.problems)
        return refused(str(path), error.problems)


def _answer(given: Given, how: Invocation) -> Sized:
    """What the scenario asks, with details where the format shows the whole of it. Raises InputError.

    Each wing is imported when it is asked: most runs need one of them.
    """
    details = how.output.whole
    if serves(given):
        from xe_sizer.studies.serve import serve

        return serve(given, how.registry, details=details)
    from xe_sizer.studies.estimate import estimate

    return estimate(given, how.registry, details)
