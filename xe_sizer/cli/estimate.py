"""`xe-sizer estimate`: size one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from xe_sizer.cli.asked import Asked
from xe_sizer.cli.options import (
    TRAINING,
    ColorOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
    ProfilesOption,
    with_scenario_options,
)
from xe_sizer.cli.text import TextCommand
from xe_sizer.profiles.registry import Registry
from xe_sizer.result.serving import Answer
from xe_sizer.scenario.read import Given

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
    asked = Asked(scenario, flags, profiles, format_, output, color, explain, exit_zero)
    return asked.answered(TRAINING, _answer)


def _answer(given: Given, registry: Registry) -> Answer:
    from xe_sizer.studies.estimate import estimate

    return estimate(given, registry)
