"""`xe-sizer serve`: size inference for a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from xe_sizer.cli.command import SEARCH, AmongOption, AnyGpuOption, Invocation, answering
from xe_sizer.cli.options import SERVING, ScenarioArgument
from xe_sizer.cli.text import TextCommand
from xe_sizer.report.document import OPERATORS

app = typer.Typer(add_completion=False)
_HELP = """Size inference: does the model fit, how many replicas sustain the load, how fast, at what cost?

The load is that of the whole service, shared by its replicas: a request rate, concurrent requests or users. --batch is
one replica's static batch, a benchmark. Without a load, a replica runs at full load.
Limits on latency (--ttft, --tpot) decide how many replicas a load needs; by default the first token within 10 s, and
10 tokens/s for each user.
--help-all lists all options. Each is also a key of the scenario file and a variable (--users is XE_SIZER_USERS).

\b
Examples:
  xe-sizer serve --model llama-3.1-70b --server dell-xe9680-h100 --request-rate 20
  xe-sizer serve --model llama-3.1-8b --gpu h100-sxm-80gb --users 500 --think-time 30
  xe-sizer serve service.yaml --ttft 1 --tpot 0.05 --brief
"""
ParetoOption = Annotated[
    bool,
    typer.Option(
        "--pareto", help="Latency against throughput: the Pareto-optimal ways to run a replica.", rich_help_panel=SEARCH
    ),
]


@app.command("serve", cls=TextCommand, help=_HELP)
@answering(SERVING, without=())
def serve_command(
    *,
    scenario: ScenarioArgument = None,
    flags: Mapping[str, object],
    among: AmongOption = None,
    any_gpu: AnyGpuOption = False,
    pareto: ParetoOption = False,
    how: Invocation,
) -> int:
    asked = how.scenario(SERVING, scenario, flags)

    from xe_sizer.studies.hardware import all_hardware, serve_on

    hardware = all_hardware(asked, among or (), any_gpu, how.registry)
    return how.write(serve_on(asked, how.registry, hardware, pareto, OPERATORS in how.topics), about=scenario)
