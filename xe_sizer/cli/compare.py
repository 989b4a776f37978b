"""`xe-sizer compare`: the same job on several GPUs, methods, stacks or layouts, side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.options import (
    ColorOption,
    ExitZeroOption,
    FileOption,
    ProfilesOption,
    format_option,
    given_scenario,
    option_and_value,
    profile_folders,
    with_scenario_options,
)
from xe_sizer.cli.output import gate, known_format, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem, did_you_mean
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.variations import FORMATS, render_variation
from xe_sizer.result.training import Result
from xe_sizer.scenario.change import flags_with
from xe_sizer.scenario.read import OPTIONS

app = typer.Typer(add_completion=False)
SCENARIO_ENDINGS = (".yaml", ".yml")
_HELP = """Compare alternatives side by side: verdict, GPUs, memory, time, cost, and the parts that differ most.

An alternative is a scenario file, a saved result (JSON of estimate), or changes of the job that the first scenario file
and the options describe. A file is an alternative too: compare job.yaml server=dell-xe9680-h200 gpus=16,stack=nemo
"""


@app.command("compare", cls=TextCommand, help=_HELP)
@with_scenario_options
def compare_command(
    *,
    alternatives: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B...", help="Scenario files, saved results, or OPTION=VALUE[,OPTION=VALUE]."),
    ] = None,
    flags: Mapping[str, object],
    profiles: ProfilesOption = None,
    format_: Annotated[str | None, format_option(FORMATS)] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_format(target.format, FORMATS)
    if not alternatives or len(alternatives) < 2:
        hint = "xe-sizer compare --model llama-2-7b --gpus 8 gpu=h100-sxm-80gb gpu=a100-sxm-80gb"
        raise InputError(Problem("name at least two alternatives", hint=hint))
    registry = Registry(profile_folders(profiles, os.environ))
    results = _results(alternatives, flags, registry)

    from xe_sizer.studies.compare import compare

    compared = compare(results)
    target.write(render_variation(compared, target.format, target.options()))
    return gate(all(result.verdict.ok for _, result in results), exit_zero)


def _results(alternatives: Sequence[str], flags: Mapping[str, object], registry: Registry) -> list[tuple[str, Result]]:
    """Every alternative estimated, or read back. Raises InputError with the problems of all of them."""
    from xe_sizer.cli.render import read_result
    from xe_sizer.studies.estimate import estimate

    found: list[tuple[str, Result]] = []
    problems: list[Problem] = []
    base = next((Path(text) for text in alternatives if Path(text).suffix.lower() in SCENARIO_ENDINGS), None)
    for text in alternatives:
        path = Path(text)
        try:
            if path.suffix.lower() == ".json":
                found.append((path.stem, read_result(text)))
                continue
            is_file = path.suffix.lower() in SCENARIO_ENDINGS
            values = flags if is_file else flags_with(flags, changes(text))
            given = given_scenario(path if is_file else base, values, os.environ, registry)
            found.append((path.stem if is_file else text, estimate(given, registry)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return found


def changes(text: str) -> dict[str, str]:
    """Options and values of `gpus=8,stack=nemo` by scenario key. Raises InputError."""
    values = {}
    for part in text.split(","):
        name, equals, value = option_and_value(part)
        if not equals or name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or "a scenario file, a saved result, or for example gpus=16"
            raise InputError(Problem(f"'{part}' is no alternative", Location(text), hint))
        values[OPTIONS[name]] = value.strip()
    return values
