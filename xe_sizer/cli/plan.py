"""`xe-sizer plan`: the best of all layouts, numbers and kinds of GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.hardware import SEARCH, AmongOption, AnyGpuOption
from xe_sizer.cli.options import (
    ColorOption,
    ExitZeroOption,
    FileOption,
    ProfilesOption,
    format_option,
    given_scenario,
    profile_folders,
    with_scenario_options,
)
from xe_sizer.cli.output import Output, check_choice, gate, known_format, output_from
from xe_sizer.cli.progress import Progress
from xe_sizer.cli.sweep import Many, objective_of
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_INTERRUPTED, InputError, Location, Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.plan import FORMATS, render_plan
from xe_sizer.result.studies import OBJECTIVES
from xe_sizer.scenario.read import Given

app = typer.Typer(add_completion=False)
_HELP = """Search every layout on every number and kind of GPU: the fewest that fit, the fastest, the cheapest.

With --gpus the number is fixed, else --max-gpus (default 1024) bounds it; --max-hours and --max-cost choose the
cheapest plan that meets them (of one price: the one with the fewest GPU-hours), or the nearest.
Ctrl-C ends the search with the best found so far (exit code 130).
"""
SWEEP = "Sweep"


@app.command("plan", cls=TextCommand, help=_HELP)
@with_scenario_options
def plan_command(
    *,
    scenarios: Annotated[
        list[str] | None, typer.Argument(metavar="SCENARIO.yaml...", help="The scenario file; several are a sweep.")
    ] = None,
    flags: Mapping[str, object],
    among: AmongOption = None,
    any_gpu: AnyGpuOption = False,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="|".join(OBJECTIVES),
            help="What is best. Default: the scenario's, else cost.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Count what each rule removed.", rich_help_panel=SEARCH)
    ] = False,
    scaling: Annotated[
        str | None,
        typer.Option(
            "--scaling", metavar="strong|weak", help="Time and efficiency over numbers of GPUs.", rich_help_panel=SEARCH
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="OPTION=V1,V2", help="Plan with each value; may be repeated.", rich_help_panel=SWEEP
        ),
    ] = None,
    jobs: Annotated[
        str | None, typer.Option("--jobs", metavar="N", help="Processes. Default: all cores.", rich_help_panel=SWEEP)
    ] = None,
    dask_scheduler: Annotated[
        str | None,
        typer.Option("--dask-scheduler", metavar="ADDRESS", help="Run on this Dask cluster.", rich_help_panel=SWEEP),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", metavar="FILE", help="Keep answers here and do not ask them again.", rich_help_panel=SWEEP
        ),
    ] = None,
    profiles: ProfilesOption = None,
    format_: Annotated[str | None, format_option(FORMATS)] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_format(target.format, FORMATS)
    if objective is not None:
        check_choice("--objective", objective, OBJECTIVES)
    registry = Registry(profile_folders(profiles, os.environ))
    files = scenarios or []
    searched = {"--among": among, "--any-gpu": any_gpu, "--explain": explain}
    if scaling is not None:
        counts = {"--gpus (--max-gpus bounds them)": flags.get("gpus") or flags.get("nodes")}
        _alone("--scaling", {**searched, **counts, "--grid": grid, "a second file": files[1:]})
    if grid or len(files) > 1:
        _alone("a sweep", searched)
        return Many(files, grid or [], jobs, dask_scheduler, resume).run(flags, registry, objective, target, exit_zero)
    swept = {"--jobs": jobs, "--resume": resume, "--dask-scheduler": dask_scheduler}
    _alone("one plan (they belong to --grid and several files)", swept)
    given = given_scenario(Path(files[0]) if files else None, flags, os.environ, registry)
    if scaling is not None:
        return _scaling(scaling, given, registry, target, exit_zero)

    from xe_sizer.studies.hardware import all_hardware
    from xe_sizer.studies.plan import plan

    hardware = all_hardware(given, among or (), any_gpu, registry)
    with Progress() as progress:
        result = plan(given, registry, hardware, objective_of(objective, given), explain, progress.layouts)
    target.write(render_plan(result, target.format, target.options()))
    return gate(result.verdict.ok, exit_zero) if result.search.complete else EXIT_INTERRUPTED


def _scaling(kind: str, given: Given, registry: Registry, target: Output, exit_zero: bool) -> int:
    from xe_sizer.report.variations import FORMATS as VARIATION_FORMATS
    from xe_sizer.report.variations import render_variation

    check_choice("--scaling", kind, ("strong", "weak"))
    known_format(target.format, VARIATION_FORMATS)

    from xe_sizer.studies.scaling import scaling

    result = scaling(given, registry, kind == "weak")
    target.write(render_variation(result, target.format, target.options()))
    return gate(bool(result.points), exit_zero)


def _alone(option: str, others: Mapping[str, object]) -> None:
    """Raises InputError: options that have no meaning beside this one."""
    given = [name for name, value in others.items() if value]
    if given:
        hint = "run the command once for each"
        raise InputError([Problem(f"{name} cannot go with {option}", Location(option), hint) for name in given])
