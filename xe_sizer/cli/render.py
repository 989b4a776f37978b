"""`xe-sizer render`: turn a saved JSON result into another format."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from xe_sizer.cli.options import (
    ColorOption,
    ExitZeroOption,
    ExplainOption,
    FileOption,
    FormatOption,
)
from xe_sizer.cli.output import check_topics, gate, output_from
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.report.registry import known_format, render
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.serving import Answer, ServeResult
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import INFERENCE

app = typer.Typer(add_completion=False)
_BYTE = re.compile(r" \(byte (\d+)\)")


@app.command("render", cls=TextCommand, help="Turn a saved JSON result into another format.")
def render_command(
    result_file: Annotated[
        str | None, typer.Argument(metavar="RESULT.json", help="The saved result; - reads stdin.")
    ] = None,
    format_: FormatOption = None,
    output: FileOption = None,
    color: ColorOption = "auto",
    explain: ExplainOption = None,
    exit_zero: ExitZeroOption = False,
) -> int:
    target = output_from(format_, output, color)
    known_format(target.format)
    topics = check_topics(tuple(explain or ()))
    if result_file is None:
        raise InputError(Problem("a saved result is missing", hint="xe-sizer render RESULT.json --format markdown"))
    result = read_answer(result_file)
    about = None if result_file == "-" else result_file
    target.write(render(result, target.format, target.options(topics, about=about)))
    return gate(result.verdict.ok, exit_zero)


def read_answer(name: str) -> Answer:
    """Decode a saved result of any kind; `-` is stdin. Raises InputError: unreadable, no result, another version."""
    place = "stdin" if name == "-" else name
    data = _read(name, place)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema_version != SCHEMA_VERSION:
            message = f"schema_version is {head.schema_version}; this xe-sizer reads {SCHEMA_VERSION}"
            raise InputError(Problem(message, Location(place)))
        if head.scenario.job == INFERENCE:
            return msgspec.json.decode(data, type=ServeResult)
        return msgspec.json.decode(data, type=Result)
    except msgspec.DecodeError as error:
        raise InputError(_problem(error, place, data)) from error


def read_result(name: str) -> Result:
    """A saved result of `estimate`. Raises InputError, also for one of `serve`."""
    answer = read_answer(name)
    if isinstance(answer, ServeResult):
        raise InputError(Problem("this is a result of serve, not of estimate", Location(name)))
    return answer


class _Job(msgspec.Struct):
    job: str | None = None


class _Head(msgspec.Struct):
    """What tells results apart."""

    schema_version: int
    scenario: _Job = msgspec.field(default_factory=_Job)


def _read(name: str, place: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InputError(Problem(f"cannot read: {error.strerror}", Location(place))) from error


def _problem(error: msgspec.DecodeError, place: str, data: bytes) -> Problem:
    """The decoder counts bytes; people count lines."""
    found = _BYTE.search(str(error))
    message = f"not a saved result: {_BYTE.sub('', str(error))}"
    if found is None:
        return Problem(message, Location(place), "write one with 'xe-sizer estimate --format json -o FILE'")
    before = data[: int(found.group(1))]
    column = len(before) - (before.rfind(b"\n") + 1) + 1
    return Problem(message, Location(place, before.count(b"\n") + 1, column))
