"""Scenario to result: the one conductor."""

from __future__ import annotations

from xe_sizer.profiles.registry import Registry
from xe_sizer.result.common import with_advice
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import Given
from xe_sizer.training.advice import advise
from xe_sizer.training.resolve import resolve
from xe_sizer.training.sizing import size
from xe_sizer.training.summary import summarise


def estimate(given: Given, registry: Registry) -> Result:
    """Size one job.

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    sized = size(resolve(given, registry))
    result = summarise(sized)
    return with_advice(result, result.verdict, advise(sized, registry))
