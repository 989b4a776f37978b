"""What one scenario asks, answered: training by `estimate`, inference by `serve`.

Each wing is imported when it is asked: most runs need one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from xe_sizer.errors import Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.result.serving import Answer
from xe_sizer.scenario.read import Given, serves


def answer(given: Given, registry: Registry) -> Answer:
    """The result of the command that the scenario is for. Raises InputError."""
    if serves(given):
        from xe_sizer.studies.serve import serve

        return serve(given, registry)
    from xe_sizer.studies.estimate import estimate

    return estimate(given, registry)


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry, serving: bool) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and software have against the rest of it."""
    if serving:
        from xe_sizer.serving.resolve import with_further_problems as of_serving

        return of_serving(problems, rest, registry)
    from xe_sizer.training.resolve import with_further_problems as of_training

    return of_training(problems, rest, registry)
