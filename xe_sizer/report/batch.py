"""Many scenarios, each answered or refused: what `check` reports."""

from __future__ import annotations

from typing import Any

import msgspec

from xe_sizer.errors import Problem
from xe_sizer.report.document import Block, Column, Document, Notes, Table
from xe_sizer.report.format import NOT_A_NUMBER, clean, gib, plural
from xe_sizer.report.phrases import reason_text
from xe_sizer.report.verdict import caution, headline, is_tight, missing_memory, pace, verdict_word
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.serving import OVERLOADED, Answer


class Outcome(msgspec.Struct, frozen=True):
    """One scenario file: its result, or the problems that kept it from one."""

    file: str
    result: Answer | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return self.result is not None and self.result.verdict.ok


class Batch(msgspec.Struct, frozen=True):
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> int:
        return sum(outcome.ok for outcome in self.outcomes)

    @property
    def tight(self) -> int:
        """How many of those that passed did so by less than the model may be wrong."""
        return sum(outcome.ok and is_tight(outcome.result) for outcome in self.outcomes if outcome.result)

    @property
    def invalid(self) -> int:
        return sum(outcome.result is None for outcome in self.outcomes)

    @property
    def failed(self) -> int:
        return len(self.outcomes) - self.passed - self.invalid


def batch_json(batch: Batch) -> dict[str, Any]:
    """The JSON contract of `check`: schema_version first, one entry a file, a summary."""
    return {
        "schema_version": SCHEMA_VERSION,
        "scenarios": [_entry(outcome) for outcome in batch.outcomes],
        "summary": {
            "total": len(batch.outcomes),
            "passed": batch.passed,
            "failed": batch.failed,
            "invalid": batch.invalid,
        },
    }


def _entry(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": outcome.file, "ok": outcome.ok}
    if outcome.result is not None:
        return entry | {"result": outcome.result}
    return entry | {"problems": [problem_json(problem) for problem in outcome.problems]}


def problem_json(problem: Problem) -> dict[str, Any]:
    where = problem.location
    return {
        "file": where.name if where else None,
        "line": where.line if where else None,
        "column": where.column if where else None,
        "message": problem.message,
        "hint": problem.hint,
    }


def batch_document(batch: Batch) -> Document:
    """Pass/fail table, what is wrong with each scenario that did not pass, and which passed narrowly."""
    total = len(batch.outcomes)
    ok = batch.passed == total
    columns = (
        Column("file"),
        Column("verdict"),
        Column("GPUs", True),
        Column("GiB used", True),
        Column("usable", True),
        Column("time", True),
        Column("note"),
    )
    rows = tuple(_row(outcome) for outcome in batch.outcomes)
    blocks: list[Block] = [Table("Scenarios", columns, rows)]
    details = tuple(f"{clean(outcome.file)}: {worst_reason(outcome)}" for outcome in batch.outcomes if not outcome.ok)
    if details:
        blocks.append(Notes("What is wrong", details))
    cautions = tuple(
        f"{clean(outcome.file)}: {text}"
        for outcome in batch.outcomes
        if outcome.result and (text := caution(outcome.result))
    )
    if cautions:
        blocks.append(Notes("Tight", cautions))
    tight = f" ({batch.tight} tight)" if batch.tight else ""
    counts = f"{batch.passed} passed{tight}, {batch.failed} failed, {batch.invalid} with bad input"
    return Document("PASS" if ok else "FAIL", ok, f"{plural(total, 'scenario')}: {counts}", (), tuple(blocks))


def _row(outcome: Outcome) -> tuple[str, ...]:
    result = outcome.result
    if result is None:
        return (clean(outcome.file), "BAD INPUT", *[NOT_A_NUMBER] * 4, "")
    return (
        clean(outcome.file),
        verdict_word(result),
        str(result.gpus.count),
        gib(result.memory.peak_bytes),
        gib(result.memory.usable_bytes),
        pace(result),
        _note(result),
    )


def _note(result: Answer) -> str:
    """Why not, in a few words; else what became of the limits."""
    if not result.verdict.fits:
        return missing_memory(result)
    if any(reason.code == OVERLOADED for reason in result.verdict.reasons):
        return "more load than it takes"
    missed = [clean(limit.name) for limit in result.verdict.limits if not limit.ok]
    if missed:
        return f"misses {', '.join(missed)}"
    judged = {limit.name for limit in result.verdict.limits}
    unread = [name for name in result.scenario.get("limits", {}) if name not in judged]
    if unread:
        return f"not judged: {', '.join(map(clean, unread))}"
    return "limits met" if judged else "no limits set"


def worst_reason(outcome: Outcome) -> str:
    """The first problem or reason; the estimator lists the gravest first."""
    if outcome.result is None:
        more = len(outcome.problems) - 1
        first = clean(problem_text(outcome.problems[0])) if outcome.problems else "cannot be read"
        return f"{first} (and {plural(more, 'more problem')})" if more > 0 else first
    reasons = outcome.result.verdict.reasons
    return reason_text(reasons[0]) if reasons else headline(outcome.result)


def problem_text(problem: Problem) -> str:
    """A problem in one line: place, message, hint."""
    where = f"{problem.location}: " if problem.location else ""
    return f"{where}{problem.message}{f' ({problem.hint})' if problem.hint else ''}"
