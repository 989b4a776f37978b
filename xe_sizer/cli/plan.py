"""`xe-sizer plan`: the best of all layouts, numbers and kinds of GPUs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.options import (
    ColorOption,
    ExitZeroOption,
    FileOption,
    ProfilesOption,
    given_scenario,
    profile_folders,
    with_scenario_options,
)
from xe_sizer.cli.output import check_choice, gate, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.plan import FORMATS, known_plan_format, render_plan

app = typer.Typer(add_completion=False)
_HELP = """Search every layout on every number and kind of GPU: the fewest that fit, the fastest, the cheapest.

With --gpus the number is fixed, else --max-gpus (default 1024) bounds it; --max-hours and --max-cost choose the
cheapest plan that meets them, or the nearest. Ctrl-C ends the search with the best found so far.
"""
OBJECTIVES = ("cost", "time", "gpus", "energy")
QUIET_S = 1.0  # a search says how far it is from this time on
OFTEN_S = 0.5


@app.command("plan", cls=TextCommand, help=_HELP)
@with_scenario_options
def plan_command(
    *,
    scenario: Annotated[str | None, typer.Argument(metavar="SCENARIO.yaml", help="The scenario file.")] = None,
    flags: Mapping[str, object],
    among: Annotated[
        list[str] | None,
        typer.Option(
            "--among",
            metavar="NAME",
            help="Search this GPU or server too; may be repeated.",
            rich_help_panel="Hardware",
        ),
    ] = None,
    any_gpu: Annotated[
        bool, typer.Option("--any-gpu", help="Search every GPU of the catalogue.", rich_help_panel="Hardware")
    ] = False,
    objective: Annotated[
        str, typer.Option("--objective", metavar="|".join(OBJECTIVES), help="What is best. Default: cost.")
    ] = OBJECTIVES[0],
    explain: Annotated[bool, typer.Option("--explain", help="Count what each rule of the space removed.")] = False,
    profiles: ProfilesOption = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help=f"{', '.join(FORMATS)}.", rich_help_panel="Output"),
    ] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_plan_format(target.format)
    check_choice("--objective", objective, OBJECTIVES)
    registry = Registry(profile_folders(profiles, os.environ))
    given = given_scenario(Path(scenario) if scenario else None, flags, os.environ, registry)

    from xe_sizer.planning import plan

    hardware = hardware_named(among or (), any_gpu, registry)
    if "gpu" in given.origin or "server" in given.origin:
        hardware = [{}, *hardware]
    result = plan(given, registry, hardware or [{}], objective, explain, told())
    target.write(render_plan(result, target.format, target.options()))
    return gate(result.verdict.ok, exit_zero)


def hardware_named(names: list[str] | tuple[str, ...], any_gpu: bool, registry: Registry) -> list[dict[str, object]]:
    """Keys of the GPUs and servers named, and of all GPUs of the catalogue where they are asked for."""
    servers, gpus = registry.names("server"), registry.names("gpu")
    found: list[dict[str, object]] = []
    for name in names:
        if name not in servers and name not in gpus:
            hint = "'xe-sizer profiles list gpu' and 'xe-sizer profiles list server' print all"
            raise InputError(Problem(f"no GPU or server is called '{name}'", Location("--among"), hint))
        found.append({"server": name} if name in servers else {"gpu": name})
    named = {entry.get("gpu") for entry in found}
    every: list[dict[str, object]] = [{"gpu": name} for name in gpus if any_gpu and name not in named]
    return [*found, *every]


def told() -> Callable[[int], None] | None:
    """Says on a terminal's stderr how many layouts were priced, once a search takes long."""
    if not sys.stderr.isatty():
        return None
    started = last = time.monotonic()
    total = before = 0

    def tell(considered: int) -> None:
        nonlocal last, total, before
        total += considered - before if considered >= before else considered
        before = considered
        now = time.monotonic()
        if now - started > QUIET_S and now - last > OFTEN_S:
            last = now
            print(f"\r{total:,} layouts priced ", end="", file=sys.stderr, flush=True)

    return tell
