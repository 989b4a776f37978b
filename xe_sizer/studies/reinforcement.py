"""From a reinforcement-learning scenario to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.sizing import size
from xe_sizer.reinforcement.summary import summarise

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import Given


def estimate(given: Given, registry: Registry, details: bool = True) -> Result:
    """Size one job that learns from answers of its own.

    details : False for its verdict alone, with the one change that mends a no

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    return summarise(size(resolve(given, registry)), details)
