"""`xe-sizer sensitivity`: what each factor of a job or a service is worth."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from xe_sizer.cli.command import Invocation, answering
from xe_sizer.cli.options import EITHER, ScenarioArgument
from xe_sizer.cli.text import TextCommand

app = typer.Typer(add_completion=False)
_HELP = """Show what each factor is worth: data, model size, method, batch, GPUs and links, parallelism, deadline.

Every factor is moved by a step each way (half and double, the next model, method or GPU) and the job estimated again.
Of a service (--users 500, or a file with a serve section): load, lengths, prefix cache, model, formats, engine, GPU,
parallelism and limits, by the GPU time that a request takes. Every option of serve is taken.

\b
Examples:
  xe-sizer sensitivity --model llama-2-7b --gpu h100-sxm-80gb --gpus 8
  xe-sizer sensitivity job.yaml -o factors.html
  xe-sizer sensitivity --model llama-3.1-70b --server dell-xe9680-h100 --users 500 --input-tokens 2000
"""


@app.command("sensitivity", cls=TextCommand, help=_HELP)
@answering(EITHER)
def sensitivity_command(*, scenario: ScenarioArgument = None, flags: Mapping[str, object], how: Invocation) -> int:
    asked = how.scenario(EITHER, scenario, flags)

    from xe_sizer.studies.sensitivity import sensitivity

    return how.write(sensitivity(asked, how.registry), about=scenario)
