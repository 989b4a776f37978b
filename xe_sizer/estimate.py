"""Scenario to result: the one conductor."""

from __future__ import annotations

import msgspec

from xe_sizer.advice import advise
from xe_sizer.profiles.registry import Registry
from xe_sizer.question import resolve
from xe_sizer.result import Advice, Result
from xe_sizer.scenario.scenario import Given
from xe_sizer.sizing import price
from xe_sizer.summary import summarise


def estimate(given: Given, registry: Registry) -> Result:
    """Size one job.

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    priced = price(resolve(given, registry))
    return _with_advice(summarise(priced), advise(priced, registry))


def _with_advice(result: Result, advice: tuple[Advice, ...]) -> Result:
    verdict = result.verdict
    if advice and verdict.reasons:
        first = msgspec.structs.replace(verdict.reasons[0], fix=advice[0].change)
        verdict = msgspec.structs.replace(verdict, reasons=(first, *verdict.reasons[1:]))
    return msgspec.structs.replace(result, advice=advice, verdict=verdict)
