"""`xe-sizer sensitivity`: what each factor of a job is worth."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from xe_sizer.cli.options import (
    ColorOption,
    FileOption,
    ProfilesOption,
    format_option,
    given_scenario,
    profile_folders,
    with_scenario_options,
)
from xe_sizer.cli.output import gate, known_format, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.profiles.registry import Registry
from xe_sizer.report.variations import FORMATS, render_variation

app = typer.Typer(add_completion=False)
_HELP = """What each factor is worth: data, model size, method, batch, GPUs and links, parallelism, deadline.

Every factor is moved by a step each way (half and double, the next model, method or GPU) and the job estimated again.
"""


@app.command("sensitivity", cls=TextCommand, help=_HELP)
@with_scenario_options
def sensitivity_command(
    *,
    scenario: Annotated[str | None, typer.Argument(metavar="SCENARIO.yaml", help="The scenario file.")] = None,
    flags: Mapping[str, object],
    profiles: ProfilesOption = None,
    format_: Annotated[str | None, format_option(FORMATS)] = None,
    output: FileOption = None,
    color: ColorOption = "auto",
) -> int:
    target = output_from(format_, output, color)
    known_format(target.format, FORMATS)
    registry = Registry(profile_folders(profiles, os.environ))
    given = given_scenario(Path(scenario) if scenario else None, flags, os.environ, registry)

    from xe_sizer.studies.sensitivity import sensitivity

    result = sensitivity(given, registry)
    target.write(render_variation(result, target.format, target.options()))
    return gate(result.base.fits, False)
