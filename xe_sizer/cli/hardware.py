"""Options that name several kinds of hardware, for the commands that choose among them."""

from __future__ import annotations

from typing import Annotated

import typer

SEARCH = "Search"
AmongOption = Annotated[
    list[str] | None,
    typer.Option("--among", metavar="NAME", help="Also this GPU or server; may be repeated.", rich_help_panel=SEARCH),
]
AnyGpuOption = Annotated[bool, typer.Option("--any-gpu", help="Every GPU of the catalogue.", rich_help_panel=SEARCH)]
