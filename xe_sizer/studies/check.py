"""Many scenarios as a gate: which files are meant, what each answers, and what is wrong with the others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem, attempt
from xe_sizer.fields import fields_of
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import MAX_JOB_BYTES, YAML_ENDINGS, read_text, start_of
from xe_sizer.profiles.yaml_reader import Document, load_yaml
from xe_sizer.result.check import Checked, Skipped, answered, check_result, refused
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.scenario.schema import EXTENDS, ScenarioFile
from xe_sizer.studies.estimate import answer_all

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.check import CheckResult, Held
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


# The answers.


def _silent(_: object) -> None:
    """What a caller is told who does not listen."""


class Gate(Immutable):
    """How files are read for a check, and who is told of those that are no scenario or a bad one.

    held_by : what a file below a folder holds
    services_of : the names of the services that a file starts, where it is of another tool and starts several
    read : the scenario in a file, or of one of its services, raises InputError
    """

    held_by: Callable[[Path], Held]
    services_of: Callable[[Path], Sequence[str]]
    read: Callable[[Path, int | None], Scenario]
    skipped: Callable[[Skipped], None] = _silent
    refused: Callable[[Sequence[Problem]], None] = _silent


def check(names: Sequence[str], gate: Gate, registry: Registry, *, details: bool = True, jobs: int = 1) -> CheckResult:
    """Answer the scenarios of files and of those below folders; a bad one does not stop the others.

    details : as of `answer_all`; jobs : processes

    Raises InputError: a folder holds more than a gate should read; joblib is not installed
    """
    read = [job for path, named in named_or_below(names) for job in _read(path, named, gate)]
    read = list(_without_bases(read, gate))
    scenarios = [job.held for job in read if isinstance(job.held, Scenario)]
    answers = iter(answer_on_cores(scenarios, registry, details, jobs))
    seen = [_checked(job, answers, gate) for job in read]
    checked = [one for one in seen if isinstance(one, Checked)] or [_nothing(", ".join(names), gate)]
    return check_result(tuple(checked), tuple(one for one in seen if isinstance(one, Skipped)))


def answer_on_cores(
    scenarios: Sequence[Scenario], registry: Registry, details: bool, jobs: int
) -> list[Result | ServeResult | InputError]:
    """`answer_all` in so many processes, each with scenarios that follow one another; the answers are the same.

    Raises InputError: joblib is not installed
    """
    if jobs == 1 or len(scenarios) < 2:
        return answer_all(scenarios, registry, details)
    from xe_sizer.studies.sweep import on_cores

    size = -(-len(scenarios) // jobs)
    shares = [scenarios[start : start + size] for start in range(0, len(scenarios), size)]
    answers = on_cores(partial(answer_all, registry=registry, details=details), shares, jobs)
    return [one for share in answers for one in share]


class _Job(Immutable):
    """What a file holds: a scenario, what is wrong with it, or why there is none; `service` names one of several."""

    path: Path
    held: Scenario | InputError | Checked | Skipped
    service: str | None = None


def _read(path: Path, named: bool, gate: Gate) -> Iterator[_Job]:
    """What a file holds; nothing where it is of no concern.

    named : by the user, and not found below a folder
    """
    held = "scenario" if named else gate.held_by(path)
    if path.is_dir():
        yield _Job(path, _nothing(str(path), gate))
    elif held == "perhaps" and not may_be_scenario(path):
        yield _Job(path, _skipped(path, NOT_A_SCENARIO, gate))
    elif held != "nothing":
        services = gate.services_of(path) if named or held == "job" else ()
        for place, service in enumerate(services):
            yield _Job(path, attempt(gate.read, path, place), service)
        if not services:
            yield _Job(path, attempt(gate.read, path, None))


def _without_bases(jobs: Sequence[_Job], gate: Gate) -> Iterator[_Job]:
    """The same, but a file without a model that scenarios among them extend is skipped."""
    fragments = {job.path for job in jobs if isinstance(job.held, InputError) and _names_no_model(job.path)}
    whole = [job.path for job in jobs if isinstance(job.held, Scenario | InputError) and job.path not in fragments]
    extended = {base: path for path in reversed(whole) for base in _bases(path)} if fragments else {}
    for job in jobs:
        above = extended.get(job.path.resolve()) if job.path in fragments else None
        reason = f"not checked by itself: {above} extends it"
        yield job if above is None else _Job(job.path, _skipped(job.path, reason, gate))


def _names_no_model(path: Path) -> bool:
    keys = _top_keys(path) if _ending(path.name) in YAML_ENDINGS else None
    return keys is not None and _KEY not in keys


def _bases(path: Path) -> Iterator[Path]:
    """The files that a scenario stands over, the nearest first."""
    seen: set[Path] = set()
    while _ending(path.name) in YAML_ENDINGS and path not in seen:
        seen.add(path)
        document = attempt(load_yaml, path, object)
        values = document.value if isinstance(document, Document) else None
        if not isinstance(values, dict) or not isinstance(values.get(EXTENDS), str):
            return
        path = (path.parent / values[EXTENDS]).resolve()
        yield path


def _skipped(path: Path, reason: str, gate: Gate) -> Skipped:
    skipped = Skipped(file=str(path), reason=reason)
    gate.skipped(skipped)
    return skipped


def _checked(job: _Job, answers: Iterator[Result | ServeResult | InputError], gate: Gate) -> Checked | Skipped:
    """What is said of a file, or of a service; `answers` are those to the scenarios, in their order."""
    if not isinstance(job.held, Scenario | InputError):
        return job.held
    found = next(answers) if isinstance(job.held, Scenario) else job.held
    if isinstance(found, InputError):
        return _refused(str(job.path), found.problems, gate, job.service)
    assert isinstance(job.held, Scenario)
    return answered(str(job.path), found, dict(_lines(job.held)), job.service)


def _lines(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """The keys that the file gives, with their lines."""
    for key, origin in scenario.origin.items():
        place = scenario.locate(tuple(key.split(".")), key=True)
        if origin == "file" and place.line is not None and place.name == str(scenario.path):
            yield key, place.line


def _nothing(folder: str, gate: Gate) -> Checked:
    """A gate that finds nothing to check must not pass."""
    hint = f"scenarios end in {' or '.join(YAML_ENDINGS)} and name a model; files of other tools are read too"
    return _refused(folder, (Problem("no scenario below this folder", Location(folder), hint),), gate)


def _refused(file: str, problems: tuple[Problem, ...], gate: Gate, service: str | None = None) -> Checked:
    gate.refused(problems)
    return refused(file, problems, service)
