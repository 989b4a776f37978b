"""From an inference scenario to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.result.common import with_advice
from xe_sizer.scenario.trials import wanted
from xe_sizer.serving.advice import advise
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.sizing import size
from xe_sizer.serving.summary import summarise, with_operators

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.estimate import ServingEstimate


def serve(given: Given, registry: Registry, details: bool = True) -> ServeResult:
    """Size one service on its own hardware.

    details : False for the verdict alone, with the one change that mends a no

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    return concluded(size(resolve(given, registry)), registry, details)


def concluded(sized: ServingEstimate, registry: Registry, details: bool = True, operators: bool = False) -> ServeResult:
    """The result of an estimate, with advice; `operators` as well with its steps operator by operator."""
    result = summarise(sized, details)
    if operators:
        result = with_operators(result, sized)
    return with_advice(result, result.verdict, advise(sized, registry, wanted(sized, details)))
