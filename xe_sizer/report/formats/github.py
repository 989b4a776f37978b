"""GitHub workflow commands: annotations on the scenario file in a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xe_sizer.report.format import clean

if TYPE_CHECKING:
    from xe_sizer.report.document import Finding, Options, Remark

SHOWS = "findings"
ENDINGS = ()


def render(findings: Iterable[Finding], options: Options) -> str:
    return "".join(f"{_command(remark, options)}\n" for finding in findings for remark in finding.remarks)


def _command(remark: Remark, options: Options) -> str:
    file = remark.file and options.place(remark.file)
    given = {"file": file, "line": remark.line, "col": remark.column, "title": remark.title}
    properties = ",".join(
        f"{key}={_data(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in given.items()
        if value is not None
    )
    return f"::{remark.level} {properties}::{_data(remark.message)}"


def _data(text: str) -> str:
    """Escape as the runner's command parser expects: one command is one line."""
    lines = (clean(line).replace("%", "%25") for line in text.splitlines())
    return "%0A".join(lines)
