"""Everything that is wrong with a scenario, at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.read import Given


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry, serving: bool) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and software have against the rest of it."""
    if serving:
        from xe_sizer.serving.resolve import with_further_problems as of_serving

        return of_serving(problems, rest, registry)
    from xe_sizer.reinforcement.asked import reinforces

    if reinforces(rest):
        from xe_sizer.reinforcement.resolve import with_further_problems as of_reinforcement

        return of_reinforcement(problems, rest, registry)
    from xe_sizer.training.resolve import with_further_problems as of_training

    return of_training(problems, rest, registry)
