"""`xe-sizer estimate`: size one job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.options import (
    ColorOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    ProfilesOption,
    given_scenario,
    profile_folders,
    with_scenario_options,
)
from xe_sizer.cli.output import check_topics, gate, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.registry import known_format, render

app = typer.Typer(add_completion=False)
_HELP = """Size one job: does it fit, on how many GPUs, how long does it take, what is it made of?

Every option is also a key of the scenario file and a variable (--seq-len is XE_SIZER_SEQ_LEN).
The flag wins over the variable, the variable over the file, the file over the stack's default.
"""


@app.command("estimate", cls=TextCommand, help=_HELP)
@with_scenario_options
def estimate_command(
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
    given = given_scenario(Path(scenario) if scenario else None, flags, os.environ, registry)

    from xe_sizer.estimate import estimate

    result = estimate(given, registry)
    target.write(render(result, target.format, target.options(topics, about=scenario)))
    return gate(result.verdict.ok, exit_zero)
