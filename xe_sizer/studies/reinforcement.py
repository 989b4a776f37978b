"""From a reinforcement-learning scenario to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.reinforcement.advice import advise
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.sizing import size
from xe_sizer.reinforcement.summary import summarise
from xe_sizer.result.common import with_advice
from xe_sizer.scenario.trials import wanted

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import Given


def estimate(given: Given, registry: Registry, details: bool = True, operators: bool = False) -> Result:
    """Size one job that learns from answers of its own.

    details : False for its verdict alone, with the one change that mends a no
    operators : with an optimizer step of the actor operator by operator

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    sized = size(resolve(given, registry), details)
    result = summarise(sized, details, operators)
    return with_advice(result, result.verdict, advise(sized, registry, wanted(sized, details)))
