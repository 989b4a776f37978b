"""The report for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.report.document import Document, Options

SHOWS = "document"
ENDINGS = (".txt",)


def render(content: Document, options: Options) -> str:
    from xe_sizer.report import terminal  # rich is what takes longest at the start, and only this format needs it

    return terminal.render(content, options)
