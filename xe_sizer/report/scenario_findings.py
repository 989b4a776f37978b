"""The verdict on one scenario as findings: its fit, its load and each of its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import NOT_JUDGED, limit_words, says_nothing
from xe_sizer.report.findings import Case, Finding, judgement
from xe_sizer.report.format import clean
from xe_sizer.report.verdict import (
    CROWDED,
    NO_SUCH_LIMIT,
    cautions,
    currency_of,
    headline,
    missed_limit,
    missed_text,
    outcome,
    reason_text,
    reasons_beyond,
    subject,
    told_limits,
    unjudged,
    verdict_word,
)
from xe_sizer.result.common import SURE, UNSURE_MEMORY

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
    narrow = cautions(answer)
    said = "\n".join([headline(answer), *([narrow] if narrow else []), *map(clean, answer.warnings)])
    if answer.verdict.fits:
        yield Case("fits", output=said)
    else:
        told = told_limits(answer.verdict)
        reasons = "\n".join(reason_text(reason) for reason in answer.verdict.reasons if reason.code not in told)
        yield Case("fits", "failed", "does-not-fit", outcome(answer), reasons, said)
    for reason in answer.verdict.reasons:
        if reason.code in CROWDED:
            yield Case("load", "failed", reason.code, reason_text(reason))
        if reason.code == UNSURE_MEMORY:
            yield Case("memory", "failed", UNSURE_MEMORY, reason_text(reason))
    yield from (limit_case(answer.verdict, limit, currency_of(answer)) for limit in answer.verdict.limits)
    for name in unjudged(answer):
        yield Case(f"limit {name}", "skipped", "not-judged", NO_SUCH_LIMIT)


def limit_case(verdict: Verdict, limit: Limit, currency: str | None = None) -> Case:
    name = f"limit {limit.name}"
    said = limit_words(verdict, limit, currency)
    if says_nothing(verdict, limit):
        return Case(name, "skipped", "not-judged", NOT_JUDGED)
    if limit.ok:
        return Case(name, output=said)
    return Case(name, "failed", "limit", f"misses {missed_limit(limit, verdict, currency)}", output=said)


def verdict_remark(answer: Sized, file: str | None) -> Remark:
    """The verdict with its reasons, and what is narrow of it."""
    narrow = cautions(answer)
    said = headline(answer)
    beyond = reasons_beyond(answer.verdict, said, told_limits(answer.verdict))
    missed = missed_text(answer.verdict, currency_of(answer)) if answer.verdict.fits else ""
    unsaid = missed if missed not in said else ""
    lines = tuple(filter(None, (said, *beyond, unsaid, narrow)))
    return judgement(answer.ok, _word(answer), lines, bool(narrow), file)


def _word(answer: Sized) -> str:
    """The verdict, and how sure a yes is where its word does not say it: `fits, unsure`."""
    word = verdict_word(answer).lower()
    certainty = answer.verdict.certainty
    doubtful = answer.ok and "," not in word and certainty is not None and certainty != SURE
    return f"{word}, {certainty}" if doubtful else word


def line_of(answer: Sized, lines: Mapping[str, int]) -> int | None:
    """The line of a scenario file that its verdict is about: a limit, the load or the hardware.

    lines : of each key that the file gives
    """
    return next((lines[key] for key in _keys_of(answer.verdict) if key in lines), None)


def _keys_of(verdict: Verdict) -> Iterator[str]:
    """Dotted keys, the closest first."""
    if verdict.fits:
        yield from (f"limits.{limit.name}" for limit in verdict.limits if not limit.ok)
    if any(reason.code in CROWDED for reason in verdict.reasons):
        yield from (f"serve.{load}" for load in ("request_rate", "concurrency", "users", "batch"))
    if verdict.ok:
        yield from (f"limits.{limit.name}" for limit in verdict.limits if limit.certainty not in ("", SURE))
    yield from ("gpus", "nodes", "gpu", "server", "model")
