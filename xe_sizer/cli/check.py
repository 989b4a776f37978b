"""`xe-sizer check`: many scenarios, one table, one exit code. The gate for CI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from xe_sizer.cli.command import Invocation, answering, held_by, read_flags, read_jobs
from xe_sizer.cli.output import one_line, print_problems, write_stderr
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem, attempt
from xe_sizer.fields import fields_of
from xe_sizer.profiles.text import MAX_JOB_BYTES, YAML_ENDINGS, read_text, start_of
from xe_sizer.profiles.yaml_reader import load_yaml
from xe_sizer.result.check import Checked, CheckResult, Skipped, answered, changes, check_result, refused
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.scenario.schema import EXTENDS, ScenarioFile

if TYPE_CHECKING:
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.training import Result

# Scenario files below folders: which there are, and what lies beside them and is none.

ENDINGS = (*YAML_ENDINGS, ".sh", ".slurm", ".sbatch", ".toml", ".json", ".py")
"""Endings of files that are looked at below a folder."""
MOST_FILES = 10_000
MOST_FOLDERS = 20_000
NOT_A_SCENARIO = "not a scenario (no 'model')"
_KEY = "model"
_ALIKE = 0.75  # 'modle' is a typing error, 'module' is a word
_TOP_KEY = re.compile(r"^([A-Za-z_][\w-]*)[ \t]*:", re.MULTILINE)


def named_or_below(names: Iterable[str]) -> Iterator[tuple[Path, bool]]:
    """The files named, and those below the folders named, each once, and whether it was named itself.

    Raises InputError: a folder holds more than a gate should read.
    """
    seen: set[Path] = set()
    for name in names:
        path = Path(name)
        below = scenario_files(path) if path.is_dir() else []
        for file in below or [path]:
            if file not in seen:
                seen.add(file)
                yield file, not below


def scenario_files(folder: Path) -> list[Path]:
    """All files below a folder that may hold a scenario, or a file of another tool, sorted.

    What is hidden, cannot be read or vanishes meanwhile is left out. Links to folders are followed, each folder once,
    so that links in a circle end.

    Raises InputError: more than MOST_FILES files or MOST_FOLDERS folders.
    """
    found: list[Path] = []
    for count, (inside, names) in enumerate(_folders(folder)):
        found += [inside / name for name in names if _ending(name) in ENDINGS and not name.startswith(".")]
        if len(found) > MOST_FILES or count >= MOST_FOLDERS:
            what = f"more than {MOST_FILES:,} configuration files or {MOST_FOLDERS:,} folders below"
            raise InputError(Problem(what, Location(str(folder)), "name the folders that hold scenarios"))
    return sorted(file for file in found if file.is_file())


def _ending(name: str) -> str:
    return Path(name).suffix.lower()


def _folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    seen: set[tuple[int, int]] = set()
    for inside, below, names in os.walk(folder, followlinks=True):
        try:
            identity = Path(inside).stat()
        except OSError:  # it has vanished
            below.clear()
            continue
        if (identity.st_dev, identity.st_ino) in seen:
            below.clear()
            continue
        seen.add((identity.st_dev, identity.st_ino))
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield Path(inside), names


def may_be_scenario(file: Path) -> bool:
    """Whether somebody may have meant a YAML file as a scenario: it has `model`, nearly that, or mostly our keys."""
    keys = _top_keys(file)
    if keys is None:
        return True
    from difflib import get_close_matches

    short = [key for key in keys if len(key) < 2 * len(_KEY)]
    if get_close_matches(_KEY, short, n=1, cutoff=_ALIKE):
        return True
    return EXTENDS in keys or (bool(keys) and 2 * len(fields_of(ScenarioFile).keys() & keys) >= len(keys))


def _top_keys(file: Path) -> set[str] | None:
    """Its outermost keys, none for a list; None where the file does not say.

    Of a file that is too large for a scenario the first lines tell.
    """
    try:
        if file.stat().st_size > MAX_JOB_BYTES:
            return set(_TOP_KEY.findall(start_of(file, MAX_JOB_BYTES).decode(errors="replace")))
        text = read_text(file)
    except (InputError, OSError):
        return None
    try:
        value = load_yaml(file, object).value
    except InputError:  # YAML of a kind that scenarios are not written in, or broken
        return set(_TOP_KEY.findall(text)) or None
    if value is None:
        return None
    return {str(key) for key in value} if isinstance(value, dict) else set()


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
    read = [(str(path), _read(path, named, flags, how)) for path, named in named_or_below(files)]
    from xe_sizer.studies.estimate import answer_on_cores

    scenarios = [held for _, held in read if isinstance(held, Scenario)]
    answers = iter(answer_on_cores(scenarios, how.registry, how.output.whole, processes))
    seen = [_checked(file, held, answers) for file, held in read]
    checked = [one for one in seen if isinstance(one, Checked)] or [_nothing(", ".join(files))]
    found = check_result(tuple(checked), tuple(one for one in seen if isinstance(one, Skipped)))
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


def _read(
    path: Path, named: bool, flags: dict[str, object], how: Invocation
) -> Scenario | InputError | Checked | Skipped | None:
    """The scenario of a file with flags, what is wrong with it, or why there is none; None for a file of no concern.

    named : by the user, and not found below a folder
    """
    if path.is_dir():
        return _nothing(str(path))
    held = "scenario" if named else held_by(path)
    if held == "nothing":
        return None
    if held == "perhaps" and not may_be_scenario(path):
        return _skipped(str(path), NOT_A_SCENARIO)
    return attempt(how.scenario, None, str(path), flags)


def _checked(
    file: str,
    held: Scenario | InputError | Checked | Skipped | None,
    answers: Iterator[Result | ServeResult | InputError],
) -> Checked | Skipped | None:
    """What is said of a file; `answers` are those to the scenarios, in the order of their files."""
    if not isinstance(held, Scenario | InputError):
        return held
    found = next(answers) if isinstance(held, Scenario) else held
    if isinstance(found, InputError):
        return _refused(file, found.problems)
    assert isinstance(held, Scenario)
    return answered(file, found, dict(_lines(held)))


def _skipped(file: str, reason: str) -> Skipped:
    write_stderr(f"note: {one_line(file)}: skipped: {reason}")
    return Skipped(file=file, reason=reason)


def _lines(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """The keys that the file gives, with their lines."""
    for key, origin in scenario.origin.items():
        place = scenario.locate(tuple(key.split(".")), key=True)
        if origin == "file" and place.line is not None and place.name == str(scenario.path):
            yield key, place.line


def _nothing(folder: str) -> Checked:
    """A gate that finds nothing to check must not pass."""
    hint = f"scenarios end in {' or '.join(YAML_ENDINGS)} and name a model; files of other tools are read too"
    return _refused(folder, (Problem("no scenario below this folder", Location(folder), hint),))


def _refused(file: str, problems: tuple[Problem, ...]) -> Checked:
    print_problems(problems)
    return refused(file, problems)
