"""Scenario to result: the one conductor."""

from __future__ import annotations

from xe_sizer.advice import advise
from xe_sizer.profiles.registry import Registry
from xe_sizer.question import resolve
from xe_sizer.result import Result, with_advice
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
    result = summarise(priced)
    return with_advice(result, result.verdict, advise(priced, registry))
