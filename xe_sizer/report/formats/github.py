"""GitHub workflow commands: annotations on the scenario file in a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from xe_sizer.errors import Problem
from xe_sizer.report.batch import Batch
from xe_sizer.report.format import clean
from xe_sizer.report.options import Options
from xe_sizer.report.verdict import caution, headline, reasons_beyond, subject, verdict_word
from xe_sizer.result.serving import Answer


def render(result: Answer, options: Options) -> str:
    return "".join(f"{line}\n" for line in _annotations(result, options.file))


def render_batch(batch: Batch, options: Options) -> str:
    lines: list[str] = []
    for outcome in batch.outcomes:
        if outcome.result is not None:
            lines.extend(_annotations(outcome.result, outcome.file))
        lines.extend(_problem(problem, outcome.file) for problem in outcome.problems)
    return "".join(f"{line}\n" for line in lines)


def _annotations(result: Answer, file: str | None) -> Iterator[str]:
    title = f"xe-sizer: {verdict_word(result).lower()}"
    narrow = caution(result)
    message = "\n".join([headline(result), *reasons_beyond(result), *([narrow] if narrow else [])])
    level = "error" if not result.verdict.ok else "warning" if narrow else "notice"
    yield _command(level, title, message, file)
    for warning in result.warnings:
        yield _command("warning", "xe-sizer", f"{subject(result)}: {warning}", file)


def _problem(problem: Problem, file: str) -> str:
    where = problem.location
    hint = f"\n{problem.hint}" if problem.hint else ""
    if where is None:
        return _command("error", "xe-sizer: bad input", problem.message + hint, file)
    return _command("error", "xe-sizer: bad input", problem.message + hint, where.name, where.line, where.column)


def _command(
    level: str, title: str, message: str, file: str | None, line: int | None = None, column: int | None = None
) -> str:
    given = {"file": file, "line": line, "col": column, "title": title}
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in given.items() if value is not None)
    return f"::{level} {properties}::{_data(message)}"


def _data(text: str) -> str:
    """Escape as the runner's command parser expects: one command is one line."""
    lines = (clean(line).replace("%", "%25") for line in text.splitlines())
    return "%0A".join(lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
