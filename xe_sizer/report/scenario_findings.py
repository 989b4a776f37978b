"""The verdict on one scenario as findings: its fit, its load and each of its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.findings import TOOL, Case, Finding, Remark
from xe_sizer.report.verdict import (
    caution,
    headline,
    limit_text,
    outcome,
    reason_text,
    reasons_beyond,
    subject,
    verdict_word,
)
from xe_sizer.result.serving import OVERLOADED

if TYPE_CHECKING:
    from xe_sizer.report.findings import Level
    from xe_sizer.result.common import Limit, Sized


def scenario_finding(answer: Sized, name: str | None, file: str | None) -> Finding:
    """The fit and each limit of one scenario.

    name : what stands for it; None: what was sized
    file : the scenario file that remarks are about
    """
    return Finding(name or subject(answer), tuple(_cases(answer)), tuple(_remarks(answer, file)))


def _cases(answer: Sized) -> Iterator[Case]:
    narrow = caution(answer)
    said = f"{headline(answer)}\n{narrow}" if narrow else headline(answer)
    if answer.verdict.fits:
        yield Case("fits", output=said)
    else:
        reasons = "\n".join(reason_text(reason) for reason in answer.verdict.reasons)
        yield Case("fits", "failed", "does-not-fit", outcome(answer), reasons, said)
    for reason in answer.verdict.reasons:
        if reason.code == OVERLOADED:
            yield Case("load", "failed", OVERLOADED, reason_text(reason))
    yield from map(limit_case, answer.verdict.limits)


def limit_case(limit: Limit) -> Case:
    name = f"limit {limit.name}"
    return Case(name) if limit.ok else Case(name, "failed", "limit", f"misses {limit_text(limit)}")


def _remarks(answer: Sized, file: str | None) -> Iterator[Remark]:
    narrow = caution(answer)
    message = "\n".join([headline(answer), *reasons_beyond(answer), *([narrow] if narrow else [])])
    level: Level = "error" if not answer.ok else "warning" if narrow else "notice"
    yield Remark(level, f"{TOOL}: {verdict_word(answer).lower()}", message, file)
    for warning in answer.warnings:
        yield Remark("warning", TOOL, f"{subject(answer)}: {warning}", file)
