"""What one scenario asks, answered: training by `estimate`, inference by `serve`.

Each wing is imported when it is asked: most runs need one of them.
"""

from __future__ import annotations

from xe_sizer.profiles.registry import Registry
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import Given, serves


def answer(given: Given, registry: Registry, details: bool = True) -> Result | ServeResult:
    """The result of the command that the scenario is for; its verdict alone where no details are shown.

    Raises InputError.
    """
    if serves(given):
        from xe_sizer.studies.serve import serve

        return serve(given, registry, details=details)
    from xe_sizer.studies.estimate import estimate

    return estimate(given, registry, details)
