"""`xe-sizer check`: many scenarios, one table, one exit code. The gate for CI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from xe_sizer.cli.foreign import held_by
from xe_sizer.cli.invocation import Invocation, answer_to, answering, read_flags
from xe_sizer.cli.scenario_files import NOT_A_SCENARIO, may_be_scenario, named_or_below
from xe_sizer.cli.streams import one_line, print_problems, write_stderr
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text_file import YAML_ENDINGS
from xe_sizer.result.changes import changes
from xe_sizer.result.check import Checked, CheckResult, Skipped, answered, check_result, refused
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import Given

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
    how: Invocation,
) -> int:
    if not files:
        raise InputError(Problem("a scenario file is missing", hint="xe-sizer check scenarios/*.yaml"))
    before = None if compare_to is None else _earlier(compare_to)
    flags = read_flags({CONFIDENCE: confidence})
    seen = [_checked(path, named, flags, how) for path, named in named_or_below(files)]
    checked = [one for one in seen if isinstance(one, Checked)] or [_nothing(", ".join(files))]
    found = check_result(tuple(checked), tuple(one for one in seen if isinstance(one, Skipped)))
    if before is not None:
        found = replace(found, compared_to=compare_to, changes=changes(before, found))
    return how.write(found)


def _earlier(name: str) -> CheckResult:
    """A saved run of `check`. Raises InputError: unreadable, or the answer to another question."""
    from xe_sizer.cli.saved import read_answer

    answer = read_answer(name)
    if not isinstance(answer, CheckResult):
        hint = "xe-sizer check scenarios -o before.json writes one"
        raise InputError(Problem(f"this is a result of {answer.question}, not of check", Location(name), hint))
    return answer


def _checked(path: Path, named: bool, flags: dict[str, object], how: Invocation) -> Checked | Skipped | None:
    """The answer to a file with flags, or why there is none; None for a file of no concern.

    named : by the user, and not found below a folder
    """
    if path.is_dir():
        return _nothing(str(path))
    held = "scenario" if named else held_by(path)
    if held == "nothing":
        return None
    if held == "perhaps" and not may_be_scenario(path):
        return _skipped(str(path), NOT_A_SCENARIO)
    try:
        given = how.given(None, str(path), flags)
        return answered(str(path), answer_to(given, how.registry, details=how.output.whole), dict(_lines(given)))
    except InputError as error:
        return _refused(str(path), error.problems)


def _skipped(file: str, reason: str) -> Skipped:
    write_stderr(f"note: {one_line(file)}: skipped: {reason}")
    return Skipped(file=file, reason=reason)


def _lines(given: Given) -> Iterator[tuple[str, int]]:
    """The keys that the file gives, with their lines."""
    for key, origin in given.origin.items():
        place = given.locate(tuple(key.split(".")), key=True)
        if origin == "file" and place.line is not None and place.name == str(given.path):
            yield key, place.line


def _nothing(folder: str) -> Checked:
    """A gate that finds nothing to check must not pass."""
    hint = f"scenarios end in {' or '.join(YAML_ENDINGS)} and name a model; files of other tools are read too"
    return _refused(folder, (Problem("no scenario below this folder", Location(folder), hint),))


def _refused(file: str, problems: tuple[Problem, ...]) -> Checked:
    print_problems(problems)
    return refused(file, problems)
