"""From a training scenario to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.reinforcement.asked import reinforces
from xe_sizer.result.common import with_advice
from xe_sizer.scenario.trials import wanted
from xe_sizer.training.advice import advise
from xe_sizer.training.resolve import resolve
from xe_sizer.training.sizing import size
from xe_sizer.training.summary import summarise, with_operators

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import Given


def estimate(given: Given, registry: Registry, details: bool = True, operators: bool = False) -> Result:
    """Size one job.

    details : False for its verdict alone, with the one change that mends a no
    operators : with its step operator by operator

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    if reinforces(given):
        from xe_sizer.studies.reinforcement import estimate as of_reinforcement  # most jobs learn from data

        return of_reinforcement(given, registry, details, operators)
    sized = size(resolve(given, registry))
    result = summarise(sized, details)
    if operators:
        result = with_operators(result, sized)
    return with_advice(result, result.verdict, advise(sized, registry, wanted(sized, details)))
