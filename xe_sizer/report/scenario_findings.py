"""The verdict on one scenario as findings: its fit, its load and each of its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import NOT_JUDGED, limit_words, says_nothing
from xe_sizer.report.findings import Case, Finding, judgement
from xe_sizer.report.format import clean
from xe_sizer.report.verdict import (
    CROWDED,
    NO_SUCH_LIMIT,
    caution,
    headline,
    limit_text,
    outcome,
    reason_text,
    reasons_beyond,
    subject,
    unjudged,
    verdict_word,
)
from xe_sizer.result.common import UNSURE_MEMORY

if TYPE_CHECKING:
    from xe_sizer.report.findings import Remark
    from xe_sizer.result.common import Limit, Sized, Verdict


def scenario_finding(answer: Sized, name: str | None, file: str | None) -> Finding:
    """The fit and each limit of one scenario. A plain yes is worth no remark: CI shows ten of a kind at most.

    name : what stands for it; None: what was sized
    file : the scenario file that remarks are about
    """
    remark = verdict_remark(answer, file)
    return Finding(name or subject(answer), tuple(_cases(answer)), () if remark.level == "notice" else (remark,))


def _cases(answer: Sized) -> Iterator[Case]:
    narrow = caution(answer)
    said = "\n".join([headline(answer), *([narrow] if narrow else []), *map(clean, answer.warnings)])
    if answer.verdict.fits:
        yield Case("fits", output=said)
    else:
        reasons = "\n".join(reason_text(reason) for reason in answer.verdict.reasons)
        yield Case("fits", "failed", "does-not-fit", outcome(answer), reasons, said)
    for reason in answer.verdict.reasons:
        if reason.code in CROWDED:
            yield Case("load", "failed", reason.code, reason_text(reason))
        if reason.code == UNSURE_MEMORY:
            yield Case("memory", "failed", UNSURE_MEMORY, reason_text(reason))
    yield from (limit_case(answer.verdict, limit) for limit in answer.verdict.limits)
    for name in unjudged(answer):
        yield Case(f"limit {name}", "skipped", "not-judged", NO_SUCH_LIMIT)


def limit_case(verdict: Verdict, limit: Limit) -> Case:
    name = f"limit {limit.name}"
    said = limit_words(verdict, limit)
    if says_nothing(verdict, limit):
        return Case(name, "skipped", "not-judged", NOT_JUDGED)
    if limit.ok:
        return Case(name, output=said)
    return Case(name, "failed", "limit", f"misses {limit_text(limit)}", output=said)


def verdict_remark(answer: Sized, file: str | None) -> Remark:
    """The verdict with its reasons, and what is narrow of it."""
    narrow = caution(answer)
    said = headline(answer)
    lines = (said, *reasons_beyond(answer.verdict, said), *([narrow] if narrow else []))
    return judgement(answer.ok, verdict_word(answer).lower(), lines, bool(narrow), file)
