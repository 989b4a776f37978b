"""Answers as a notebook shows them: a line, the first screen, a fragment of a page, its charts, a table of data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.result.common import shown_by

if TYPE_CHECKING:
    from xe_sizer.report.document import Document
    from xe_sizer.result.common import Answer


def line(answer: Answer) -> str:
    """The verdict in one line."""
    document = _document(answer)
    return f"<{answer.question}: {document.verdict}, {document.headline}>"


def text(answer: Answer) -> str:
    """The first screen, as `--brief` prints it."""
    from xe_sizer.report.document import Options
    from xe_sizer.report.registry import DEFAULT, render

    return render(answer, DEFAULT, Options(brief=True)).rstrip("\n")


def fragment(answer: Answer) -> str:
    """The first screen as HTML that stands within another page."""
    from xe_sizer.report.formats.html import fragment

    return fragment(_document(answer).brief)


class Chart(str):
    """A chart as the text of an SVG file; what a cell ends with is drawn."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<chart of {len(self):,} characters>"

    def _repr_svg_(self) -> str:
        return str(self)


def charts(answer: Answer) -> dict[str, Chart]:
    """The charts of its page by their titles."""
    from xe_sizer.report.svg import svg_file

    return {picture.title: Chart(svg_file(picture)) for picture in _document(answer).pictures}


def frame(answer: Answer) -> Any:
    """The rows of `--format csv` as a DataFrame of pandas.

    Raises
    ------
    InputError : pandas is not installed
    """
    try:
        import pandas as pd
    except ImportError:
        problem = Problem("pandas is not installed", Location("to_frame()"), "pip install pandas")
        raise InputError(problem) from None
    from xe_sizer.report.answers import reporter
    from xe_sizer.report.document import Options

    columns, *rows = reporter(answer.question).rows(answer, Options())
    return pd.DataFrame(rows, columns=list(columns))


def _document(answer: Answer) -> Document:
    from xe_sizer.report.answers import reporter
    from xe_sizer.report.document import Options

    return reporter(answer.question).document(answer, Options())


shown_by(sys.modules[__name__])
