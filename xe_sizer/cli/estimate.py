"""`xe-sizer estimate`: size one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast, get_args

import typer

from xe_sizer.cli.command import Invocation, TimelineOption, answering, write_timeline
from xe_sizer.cli.options import TRAINING, ScenarioArgument
from xe_sizer.cli.output import check_choice
from xe_sizer.cli.text import TextCommand
from xe_sizer.report.document import OPERATORS
from xe_sizer.result.training import FitQuestion

app = typer.Typer(add_completion=False)
_HELP = """Size one job: does it fit, on how many GPUs, how long does it take, and why?

--help-all lists all options. Each is also a key of the scenario file and a variable (--seq-len is XE_SIZER_SEQ_LEN).

\b
Examples:
  xe-sizer estimate --model llama-3.1-8b --gpu H100 --gpus 8 --job lora
  xe-sizer estimate job.yaml --max-hours 24 --brief
  xe-sizer estimate job.yaml --explain operators --explain memory
  xe-sizer estimate job.yaml -o report.html -o result.json
  xe-sizer estimate --model qwen2.5-7b --gpu T4 --job qlora --fit context
"""
FitOption = Annotated[
    str | None,
    typer.Option("--fit", metavar="WHAT", help=f"The largest that fits: {', '.join(get_args(FitQuestion))}."),
]


@app.command("estimate", cls=TextCommand, help=_HELP)
@answering(TRAINING, without=())
def estimate_command(
    *,
    scenario: ScenarioArgument = None,
    fit: FitOption = None,
    timeline: TimelineOption = None,
    flags: Mapping[str, object],
    how: Invocation,
) -> int:
    question = None if fit is None else cast("FitQuestion", check_choice("--fit", fit, get_args(FitQuestion)))
    asked = how.scenario(TRAINING, scenario, flags)
    operators = OPERATORS in how.topics
    if question is None:
        from xe_sizer.studies.estimate import estimate

        result = estimate(asked, how.registry, operators=operators)
    else:
        from xe_sizer.studies.fit import fit as largest

        result = largest(asked, question, how.registry, operators=operators)
    if timeline is not None:
        write_timeline(result, timeline)
    return how.write(result, about=scenario)
