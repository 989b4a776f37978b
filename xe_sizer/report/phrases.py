"""Phrases that verdicts of every kind of answer share."""

from __future__ import annotations

from xe_sizer.report.format import clean, number
from xe_sizer.result.common import Limit, Reason, Verdict


def limit_text(limit: Limit) -> str:
    value = "unknown" if limit.value is None else number(limit.value)
    return f"{clean(limit.name)} (limit {number(limit.limit)}, estimate {value})"


def missed_text(verdict: Verdict) -> str:
    """The limits that do not hold, in a few words; empty where all do."""
    missed = [limit_text(limit) for limit in verdict.limits if not limit.ok]
    return f"misses {'; '.join(missed)}" if missed else ""


def reason_text(reason: Reason) -> str:
    fix = f" Fix: {clean(reason.fix)}" if reason.fix else ""
    return f"{clean(reason.message)}{'.' if fix and not reason.message.endswith('.') else ''}{fix}"
