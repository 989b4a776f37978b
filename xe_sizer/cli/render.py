"""`xe-sizer render`: turn a saved answer into another format."""

from __future__ import annotations

from typing import Annotated

import typer

from xe_sizer.cli.invocation import Invocation, answering
from xe_sizer.cli.saved import from_outside, read_answer
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import InputError, Problem

app = typer.Typer(add_completion=False)
AnswerArgument = Annotated[
    str | None, typer.Argument(metavar="RESULT.json", help="The saved answer of any command; - reads stdin.")
]


@app.command("render", cls=TextCommand, help="Turn the saved JSON of any command into another format.")
@answering(without=("profiles", "download"))
def render_command(*, result_file: AnswerArgument = None, how: Invocation) -> int:
    if result_file is None:
        raise InputError(Problem("a saved result is missing", hint="xe-sizer render RESULT.json --format markdown"))
    answer = read_answer(result_file)
    with from_outside([result_file]):
        return how.show(answer, about=None if result_file == "-" else result_file)
