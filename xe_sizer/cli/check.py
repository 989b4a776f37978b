"""`xe-sizer check`: many scenarios, one table, one exit code. The gate for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from xe_sizer.cli.command import Invocation, answering, read_flags, read_jobs
from xe_sizer.cli.output import one_line, print_problems, write_stderr
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.result.check import CheckResult, changes
from xe_sizer.scenario.options import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.result.check import Skipped
    from xe_sizer.scenario.scenario import Scenario

app = typer.Typer(add_completion=False)
_HELP = """Answer every training and inference scenario and check it against its own limits.

Configurations and launch scripts of other tools count as scenarios ('xe-sizer import' shows how they are read).
Bad scenarios do not stop the others. Exit code 2 if any input was bad, else 1 if any failed, else 0.

\b
Examples:
  xe-sizer check scenarios/ -o sizing.xml -o sizing.json
  xe-sizer check scenarios/*.yaml --format github
  xe-sizer check scenarios/ --confidence 0.9
  xe-sizer check scenarios/ --compare-to main.json
"""
CONFIDENCE = OPTIONS["confidence"]
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Scenarios, files of other tools, or folders of them."),
]
ConfidenceOption = Annotated[
    str | None,
    typer.Option(
        "--confidence",
        metavar="X",
        help="Required probability that limits hold and memory suffices, for all scenarios: 0.9 or 90%.",
    ),
]
JobsOption = Annotated[
    str | None, typer.Option("--jobs", metavar="N", help="Processes, for many scenarios. Default: 1.")
]
CompareOption = Annotated[
    str | None,
    typer.Option("--compare-to", metavar="RESULT.json", help="Show what changed since this saved run of check."),
]


@app.command("check", cls=TextCommand, help=_HELP)
@answering()
def check_command(
    *,
    files: FilesArgument = None,
    confidence: ConfidenceOption = None,
    compare_to: CompareOption = None,
    jobs: JobsOption = None,
    how: Invocation,
) -> int:
    if not files:
        raise InputError(Problem("a scenario file is missing", hint="xe-sizer check scenarios/*.yaml"))
    before = None if compare_to is None else _earlier(compare_to)
    processes = 1 if jobs is None else read_jobs(jobs)
    flags = read_flags({CONFIDENCE: confidence})
    from xe_sizer.interop.files import held_by, services_of
    from xe_sizer.studies.check import Gate, check

    def read(path: Path, service: int | None) -> Scenario:
        return how.scenario(None, str(path), flags, service)

    gate = Gate(held_by, services_of, read, _say_skipped, print_problems)
    found = check(files, gate, how.registry, details=how.output.whole, jobs=processes)
    if before is not None:
        found = replace(found, compared_to=compare_to, changes=changes(before, found))
    return how.write(found)


def _earlier(name: str) -> CheckResult:
    """A saved run of `check`. Raises InputError: unreadable, or the answer to another question."""
    from xe_sizer.cli.render import read_answer

    answer = read_answer(name)
    if not isinstance(answer, CheckResult):
        hint = "xe-sizer check scenarios -o before.json writes one"
        raise InputError(Problem(f"this is a result of {answer.question}, not of check", Location(name), hint))
    return answer


def _say_skipped(skipped: Skipped) -> None:
    write_stderr(f"note: {one_line(skipped.file)}: skipped: {skipped.reason}")
