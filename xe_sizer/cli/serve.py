"""`xe-sizer serve`: size inference for a load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.options import (
    SERVING,
    ColorOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    ProfilesOption,
    given_scenario,
    profile_folders,
    with_options_of,
)
from xe_sizer.cli.output import check_topics, gate, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.registry import known_format, render

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
    profiles: ProfilesOption = None,
    format_: FormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    explain: ExplainOption = None,
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_format(target.format)
    topics = check_topics(tuple(explain or ()))
    registry = Registry(profile_folders(profiles, os.environ))
    given = given_scenario(Path(scenario) if scenario else None, flags, os.environ, registry, SERVING)

    from xe_sizer.serve import serve

    result = serve(given, registry)
    target.write(render(result, target.format, target.options(topics, about=scenario)))
    return gate(result.verdict.ok, exit_zero)
