"""`xe-sizer plan`: the best of all layouts, numbers and kinds of GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.command import (
    SEARCH,
    AmongOption,
    AnyGpuOption,
    Invocation,
    TimelineOption,
    answering,
    read_jobs,
    write_timeline,
)
from xe_sizer.cli.options import EITHER, TRAINING, option_and_value
from xe_sizer.cli.output import Progress, check_choice
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.result.studies import OBJECTIVES
from xe_sizer.scenario.options import OPTIONS
from xe_sizer.scenario.read import flags_with
from xe_sizer.scenario.scenario import serves
from xe_sizer.studies.sweep import Cell, build_cell, combinations

# Several scenarios or a grid under `plan`: the sweep behind `--grid`, `--jobs`, `--dask-scheduler` and `--resume`.


class Many(Immutable):
    """What the options of a sweep say."""

    files: Sequence[str]
    grid: Sequence[str]
    jobs: str | None
    scheduler: str | None
    resume: str | None

    @property
    def processes(self) -> int:
        """Where nobody asked all cores, or one without joblib. Raises InputError."""
        if self.jobs is None and find_spec("joblib") is None:
            return 1
        if self.jobs is None:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return read_jobs(self.jobs)

    @property
    def answers(self) -> Path | None:
        """The file that keeps answers."""
        return Path(self.resume) if self.resume else None

    def cells(self, flags: Mapping[str, object], objective: str | None, how: Invocation) -> list[Cell]:
        """Every file with every combination of the grid. Raises InputError with the problems of all of them."""
        from xe_sizer.studies.plan import usual_objective as usual

        grid = read_grid(self.grid)
        _known(grid, how.registry)
        cells: list[Cell] = []
        problems: list[Problem] = []
        for file in self.files or ("",):
            for values in combinations(grid):
                changed = flags_with(flags, {OPTIONS[name]: value for name, value in values})
                try:
                    scenario = how.scenario(TRAINING, file or None, changed)
                except InputError as error:
                    problems += error.problems
                    continue
                cells.append(build_cell(scenario, values, how.registry.user_folders, objective or usual(scenario)))
        if problems:
            raise InputError(list(dict.fromkeys(problems)))
        return cells


def read_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Option -> values of `gpus=8,16`. Raises InputError: no such option, no values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = option_and_value(text)
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if name not in OPTIONS or not listed:
            hint = did_you_mean(name, OPTIONS) if name not in OPTIONS else None
            raise InputError(
                Problem(f"'{text}' is no grid", Location("--grid"), hint or "for example --grid gpus=8,16")
            )
        found[name] = list(dict.fromkeys([*found.get(name, []), *listed]))
    return found


def _known(grid: Mapping[str, Sequence[str]], registry: Registry) -> None:
    """Raises InputError with every name of the grid that nothing here has."""
    from xe_sizer.profiles.catalogue import load_stack

    place = Location("--grid")
    look_up: dict[str, Callable[[str], object]] = {
        "model": lambda name: registry.model(name, place),
        "gpu": lambda name: registry.accelerator(name, place),
        "server": lambda name: registry.server(name, place),
        "stack": lambda name: load_stack(name, place, registry),
    }
    problems: list[Problem] = []
    for option, find in look_up.items():
        for name in grid.get(option, ()):
            with collecting(problems):
                find(name)
    if problems:
        raise InputError(problems)


app = typer.Typer(add_completion=False)
_HELP = """Search every layout on every number and kind of GPU: the fewest that fit, the fastest, the cheapest.

With --gpus the number is fixed, else --max-gpus (default 1024) bounds it.
A service (--users 500) is answered as serve does, with every option of serve.
Of the plans that keep every limit (--max-hours, --max-cost and others) the
best by --objective is chosen; where none keeps them all, the nearest.
--help-all lists all options.

\b
Examples:
  xe-sizer plan --model llama-3.1-70b --server XE9680-H100 --max-hours 24
  xe-sizer plan job.yaml --among dell-xe9680-h200 --objective cost
  xe-sizer plan job.yaml --grid gpus=8,16,32 -o plans.csv
  xe-sizer plan --model llama-3.1-70b --users 500 --among h100 --among h200
"""
SWEEP = "Sweep"
SCALINGS = ("strong", "weak")
ScenariosArgument = Annotated[
    list[str] | None, typer.Argument(metavar="SCENARIO.yaml...", help="The scenario file; several make a sweep.")
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="CHOICE",
        help=f"What to minimise: {', '.join(OBJECTIVES)}. Default: servers with --max-hours, else cost.",
        rich_help_panel=SEARCH,
    ),
]
RulesOption = Annotated[bool, typer.Option("--explain", help="Count what each rule removed.", rich_help_panel=SEARCH)]
ScalingOption = Annotated[
    str | None,
    typer.Option(
        "--scaling",
        metavar="|".join(SCALINGS),
        help="Time and efficiency over numbers of GPUs.",
        rich_help_panel=SEARCH,
    ),
]
GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid", metavar="OPTION=V1,V2", help="Plan with each value; may be repeated.", rich_help_panel=SWEEP
    ),
]
JobsOption = Annotated[
    str | None,
    typer.Option("--jobs", metavar="N", help="Processes. Default: all cores.", rich_help_panel=SWEEP, hidden=True),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--dask-scheduler", metavar="ADDRESS", help="Run on this Dask cluster.", rich_help_panel=SWEEP, hidden=True
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume", metavar="FILE", help="Save answers to this file and reuse them.", rich_help_panel=SWEEP, hidden=True
    ),
]


@app.command("plan", cls=TextCommand, help=_HELP)
@answering(EITHER)
def plan_command(
    *,
    scenarios: ScenariosArgument = None,
    flags: Mapping[str, object],
    among: AmongOption = None,
    any_gpu: AnyGpuOption = False,
    objective: ObjectiveOption = None,
    explain: RulesOption = False,
    scaling: ScalingOption = None,
    grid: GridOption = None,
    jobs: JobsOption = None,
    dask_scheduler: SchedulerOption = None,
    resume: ResumeOption = None,
    timeline: TimelineOption = None,
    how: Invocation,
) -> int:
    if objective is not None:
        check_choice("--objective", objective, OBJECTIVES)
    files = scenarios or []
    searched = {"--among": among, "--any-gpu": any_gpu, "--explain": explain, "--timeline": timeline}
    if scaling is not None:
        counts = {"--gpus (--max-gpus bounds them)": flags.get("gpus") or flags.get("nodes")}
        _alone("--scaling", {**searched, **counts, "--grid": grid, "a second file": files[1:]})
    if grid or len(files) > 1:
        _alone("a sweep", searched)
        return _sweep(Many(files, grid or [], jobs, dask_scheduler, resume), flags, objective, how)
    swept = {"--jobs": jobs, "--resume": resume, "--dask-scheduler": dask_scheduler}
    _alone("one plan (they belong to --grid and several files)", swept)
    file = files[0] if files else None
    if scaling is not None:
        return _scaling(scaling, file, flags, how)
    return _plan(file, flags, how, objective, among, any_gpu, explain, timeline)


def _plan(
    file: str | None,
    flags: Mapping[str, object],
    how: Invocation,
    objective: str | None,
    among: list[str] | None,
    any_gpu: bool,
    explain: bool,
    timeline: str | None,
) -> int:
    scenario = how.scenario(EITHER, file, flags)

    from xe_sizer.studies.hardware import all_hardware, serve_on
    from xe_sizer.studies.plan import plan_and_estimate

    hardware = all_hardware(scenario, among or (), any_gpu, how.registry)
    if serves(scenario):
        _alone("a service", {"--explain": explain, "--objective": objective})
        return how.write(serve_on(scenario, how.registry, hardware), about=file)
    with Progress() as progress:
        result, chosen = plan_and_estimate(scenario, how.registry, hardware, objective, explain, progress.layouts)
    if timeline is not None:
        write_timeline(None if chosen is None else chosen(), timeline)
    return how.write(result, about=file)


def _sweep(many: Many, flags: Mapping[str, object], objective: str | None, how: Invocation) -> int:
    from xe_sizer.studies.sweep import sweep

    processes, cells = many.processes, many.cells(flags, objective, how)
    with Progress() as progress:
        result = sweep(cells, processes, many.scheduler, many.answers, progress.plans)
    return how.write(result)


def _scaling(kind: str, file: str | None, flags: Mapping[str, object], how: Invocation) -> int:
    check_choice("--scaling", kind, SCALINGS)
    scenario = how.scenario(TRAINING, file, flags)

    from xe_sizer.studies.scaling import scaling

    return how.write(scaling(scenario, how.registry, kind == "weak"), about=file)


def _alone(option: str, others: Mapping[str, object]) -> None:
    """Raises InputError: options that have no meaning beside this one."""
    given = [name for name, value in others.items() if value]
    if given:
        hint = "run the command once for each"
        raise InputError([Problem(f"{name} cannot go with {option}", Location(option), hint) for name in given])
