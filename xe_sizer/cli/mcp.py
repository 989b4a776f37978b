"""`xe-sizer mcp`: the questions as tools for agents, on stdin and stdout."""

from __future__ import annotations

import typer

from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_OK, InputError, Problem

app = typer.Typer(add_completion=False)
_HELP = """Answer agents over the Model Context Protocol, on stdin and stdout.

Tools: estimate, plan, serve, explain, import, keys. Needs the extra 'mcp'.
"""


@app.command("mcp", cls=TextCommand, help=_HELP)
def mcp_command() -> int:
    try:
        from xe_sizer.mcp import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        message = "'xe-sizer mcp' needs the extra 'mcp', which is not installed"
        raise InputError(Problem(message, hint='pip install "xe-sizer[mcp]"')) from None
    run()
    return EXIT_OK
