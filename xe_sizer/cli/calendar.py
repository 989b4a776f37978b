"""`xe-sizer calendar`: the jobs and services of one cluster over a day or a week."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from xe_sizer.cli.command import Invocation, answering, given_scenario, read_flags, say_briefly
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.scenario.options import OPTIONS

if TYPE_CHECKING:
    from xe_sizer.profiles.yaml_reader import Document
    from xe_sizer.scenario.scenario import Scenario

app = typer.Typer(add_completion=False)
_HELP = """Share one cluster between jobs and services: what runs when, what waits, which jobs are done by when.

The file names the servers, and for each job or service a scenario, a window (20:00-08:00), a priority and a deadline.
Without a number of servers the fewest are looked for that serve everything and meet all deadlines.

\b
Examples:
  xe-sizer calendar cluster.yaml
  xe-sizer calendar cluster.yaml --servers 3
  xe-sizer calendar cluster.yaml --confidence 0.9 -o week.html
"""
CONFIDENCE = OPTIONS["confidence"]
FileArgument = Annotated[str | None, typer.Argument(metavar="FILE", help="The calendar: a YAML file.")]
ServersOption = Annotated[
    str | None, typer.Option("--servers", metavar="N", help="So many servers, instead of the file's number.")
]
ConfidenceOption = Annotated[
    str | None,
    typer.Option("--confidence", metavar="X", help="Required probability that deadlines are met: 0.9 or 90%."),
]


@app.command("calendar", cls=TextCommand, help=_HELP)
@answering()
def calendar_command(
    *, file: FileArgument = None, servers: ServersOption = None, confidence: ConfidenceOption = None, how: Invocation
) -> int:
    if file is None:
        raise InputError(Problem("a calendar is missing", hint="xe-sizer calendar cluster.yaml"))
    count, flags = _servers(servers), read_flags({CONFIDENCE: confidence})

    from xe_sizer.interop.files import scenario_reader
    from xe_sizer.scenario.calendar import read_calendar
    from xe_sizer.studies.calendar import calendar_result

    def read_file(path: Path, hardware: Mapping[str, object]) -> Document:
        return scenario_reader(hardware, say_briefly)(path)

    def read_scenario(document: Document) -> Scenario:
        return given_scenario(document.path, flags, os.environ, how.registry, None, read=lambda _: document)

    asked: Any = read_calendar(Path(file), how.registry, read_file, read_scenario)
    if count is not None:
        asked = replace(asked, servers=count, gpus=None)
    if flags:
        asked = replace(asked, confidence=flags[CONFIDENCE])
    return how.write(calendar_result(asked, how.registry), about=file)


def _servers(text: str | None) -> int | None:
    """A number of servers. Raises InputError: it is none."""
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(Problem(f"'{text}' is not a number of servers", Location("--servers"), "for example 2"))
    return int(text)
