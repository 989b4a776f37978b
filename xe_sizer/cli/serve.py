"""`xe-sizer serve`: size inference for a load."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import typer

from xe_sizer.cli.asked import Asked
from xe_sizer.cli.hardware import SEARCH, AmongOption, AnyGpuOption
from xe_sizer.cli.options import (
    SERVING,
    ColorOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    ProfilesOption,
    with_options_of,
)
from xe_sizer.cli.text import TextCommand
from xe_sizer.profiles.registry import Registry
from xe_sizer.result.serving import Answer
from xe_sizer.scenario.read import Given

app = typer.Typer(add_completion=False)
_HELP = """Size inference: does the model fit, how many replicas take the load, how fast, at what cost?

The load is a request rate, a number of concurrent requests or a batch; without one a replica is loaded fully.
Limits on latency (--ttft, --tpot) decide how many replicas a request rate needs.
Every option is also a key of the scenario file and a variable (--request-rate is XE_SIZER_REQUEST_RATE).
"""


@app.command("serve", cls=TextCommand, help=_HELP)
@with_options_of(SERVING)
def serve_command(
    *,
    scenario: Annotated[str | None, typer.Argument(metavar="SCENARIO.yaml", help="The scenario file.")] = None,
    flags: Mapping[str, object],
    among: AmongOption = None,
    any_gpu: AnyGpuOption = False,
    pareto: Annotated[
        bool,
        typer.Option(
            "--pareto", help="Ways to run a replica: fast for a user, or much for a GPU.", rich_help_panel=SEARCH
        ),
    ] = False,
    profiles: ProfilesOption = None,
    format_: FormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    explain: ExplainOption = None,
    exit_zero: ExitZeroOption = False,
) -> int:
    asked = Asked(scenario, flags, profiles, format_, output, color, explain, exit_zero)
    return asked.answered(SERVING, partial(_answer, among=among, any_gpu=any_gpu, front=pareto))


def _answer(given: Given, registry: Registry, among: list[str] | None, any_gpu: bool, front: bool) -> Answer:
    from xe_sizer.studies.hardware import all_hardware
    from xe_sizer.studies.serve import serve

    return serve(given, registry, all_hardware(given, among or (), any_gpu, registry), front)
