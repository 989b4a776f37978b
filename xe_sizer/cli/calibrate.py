"""`xe-sizer calibrate`: a stack fitted to your own measurements."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xe_sizer.cli.command import profile_folders
from xe_sizer.cli.options import FileOption, ProfilesOption
from xe_sizer.cli.output import one_file, print_problems, write_stderr, write_texts
from xe_sizer.cli.text import TextCommand
from xe_sizer.cli.validate import RUNS_HELP, ScenarioOption
from xe_sizer.errors import EXIT_OK, InputError, Location, Problem
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.text import YAML_ENDINGS
from xe_sizer.report.answers.validate import calibration_yaml
from xe_sizer.report.format import percent
from xe_sizer.scenario.read import read_scenario
from xe_sizer.software.uncertainty import in_words

if TYPE_CHECKING:
    from xe_sizer.evidence.calibrate import Calibration
    from xe_sizer.training.resolved import ResolvedTraining

app = typer.Typer(add_completion=False)
_HELP = """Fit a software stack to measured runs and write it as a stack file.

Its few factors say how much faster or slower than the parent your cluster works; `estimate --stack FILE` uses them.
What the measurements do not determine stays as the parent has it.
"""
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
SHOWN = 3  # reasons for skipped records


@app.command("calibrate", cls=TextCommand, help=_HELP)
def calibrate_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help=RUNS_HELP),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            metavar="NAME",
            help="The shipped stack that comes nearest to yours; left out: the one that most of the records name.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="FILE", help="A scenario of the job that the stack is for: runs alike say most."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What the new stack is called; by default as its file."),
    ] = None,
    scenario: ScenarioOption = None,
    profiles: ProfilesOption = None,
    output: FileOption = None,
) -> int:
    if not files:
        raise InputError(
            Problem("no records to calibrate on", hint="xe-sizer calibrate FILE..., see docs/calibrate.md")
        )
    file = _stack_file(output)
    given, place = name, Location("--output" if name is None and file else "--name")
    name = given or (file.stem if file else "calibrated")
    if NAME.fullmatch(name) is None:
        hint = "lower-case letters, digits, '.' and '-', for example our-cluster"
        raise InputError(Problem(f"'{name}' cannot be the name of a stack", place, hint))
    if stack is not None:
        load_stack(stack, Location("--stack"))
    from xe_sizer.evidence.calibrate import calibrate
    from xe_sizer.evidence.logs import read_runs

    folders = profile_folders(profiles, os.environ)
    read = read_runs([Path(file) for file in files], Path(scenario) if scenario else None, folders)
    print_problems(read.notes)
    found = calibrate(read.records, stack, name, None if like is None else _like(Path(like), folders), folders)
    remarks = _remarks(found)
    source = f"{len(found.used)} measurements in {', '.join(Path(name).name for name in files)}"
    fitted = found.stack
    text = calibration_yaml(fitted.name, found.parent, found.fitted_keys, fitted.uncertainty, remarks, source)
    write_texts([(file, text)])
    for remark in remarks:
        write_stderr(remark)
    return EXIT_OK


def _like(file: Path, folders: Sequence[Path]) -> ResolvedTraining:
    """The job of a scenario file. Raises InputError."""
    from xe_sizer.evidence.names import RecordRegistry
    from xe_sizer.training.resolve import resolve

    return resolve(read_scenario(file, {}, {}), RecordRegistry(folders))


def _stack_file(output: Sequence[str] | None) -> Path | None:
    """Where the stack goes; None for stdout. Raises InputError: several files, or one that is not called YAML."""
    file = one_file(output)
    if file is not None and file.suffix.lower() not in ("", *YAML_ENDINGS):
        hint = f"a stack is YAML; known are {', '.join(YAML_ENDINGS)}"
        raise InputError(Problem(f"a stack cannot have the ending '{file.suffix}'", Location("--output"), hint))
    return file


HELPFUL = {0: "15", 1: "12", 2: "10", 4: "9", 8: "9"}
"""Median error in per cent of a publication's runs by the number of its others that were fitted.

Measured: 54 publications with several runs of one stack, weighted alike.
"""


def _how_many(found: Calibration) -> str:
    """Whether the runs help, and how many usually do."""
    usual = ", ".join(f"{error} % with {runs or 'none'}" for runs, error in HELPFUL.items())
    said = (
        f"{found.parts} different runs were fitted; of published runs with as many of their own the median error is "
        f"{usual}. Runs of the model, length and layout that you will ask about tell most (--like FILE prefers them)."
    )
    if found.parts > 1 and found.left_out >= found.before:
        said += f" These do not help yet: {found.parent} is as near to runs that a fit had not seen."
    return said


def _memory_remark(found: Calibration) -> str:
    """What was made of measured peaks of memory."""
    memory, shows = found.memory, "xe-sizer validate --stack FILE shows how far off"
    if memory is None:
        return (
            f"Memory is not fitted, as no record has a peak (measured: peak_memory_gib) and a stated micro-batch: it "
            f"stays that of {found.parent}; {shows}."
        )
    return (
        f"Live tensors x {memory.scale:.2f}, {memory.weight:.0%} of what {memory.parts} different peaks differ by. "
        f"Median error of peaks: {memory.before:.1%} with {found.parent}, {memory.left_out:.1%} on runs that a fit had "
        f"not seen; {shows}."
    )


def _remarks(found: Calibration) -> list[str]:
    factors = "; ".join(f"{factor.name} x {factor.value:.2f} (+-{percent(factor.error)})" for factor in found.factors)
    remarks = [
        (
            f"Fitted to {len(found.used)} measured times. Median error: {found.before:.1%} with {found.parent}, "
            f"{found.after:.1%} with these factors, {found.left_out:.1%} on records that a fit had not seen."
        ),
        (
            f"Four in five new runs should be {in_words(found.stack.uncertainty)}. That follows from "
            f"leaving out each of {found.parts} different runs, or publications, and from the published range of "
            f"{found.parent}, which counts as one more: it narrows with the number of different runs."
        ),
        f"Factors on {found.parent}: {factors}. More of an efficiency is faster, more of launches is slower.",
        _memory_remark(found),
        _how_many(found),
    ]
    if found.skipped:
        reasons = "; ".join(f"{record}: {reason}" for record, reason in found.skipped[:SHOWN])
        more = f"; {len(found.skipped) - SHOWN} more" if len(found.skipped) > SHOWN else ""
        remarks.append(f"Not used: {reasons}{more}.")
    return remarks
