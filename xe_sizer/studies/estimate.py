"""From a scenario to its result.

Training is imported at once; reinforcement learning and serving, which most questions have no part of, when asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xe_sizer.result.common import with_advice
from xe_sizer.scenario.trials import wanted
from xe_sizer.training.advice import advise as advise_training
from xe_sizer.training.methods import METHODS
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.search import size as size_training
from xe_sizer.training.summary import summarise as summarise_training
from xe_sizer.training.summary import with_operators

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.result.common import Advice
    from xe_sizer.result.serving import ServeResult
    from xe_sizer.result.training import Result
    from xe_sizer.scenario.read import Scenario
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining

# A scenario that trains, resolved and sized, whatever its job learns from: data, or answers of its own.


def reinforces(scenario: Scenario) -> bool:
    """Whether a scenario's job learns from answers that the model itself writes."""
    kind = METHODS.get(scenario.values.job or "")
    return kind is not None and kind.rollout is not None


def resolve_job(scenario: Scenario, registry: Registry) -> ResolvedTraining | ResolvedReinforcement:
    """Everything that sizing needs. Raises InputError."""
    if reinforces(scenario):
        from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement

        return resolve_reinforcement(scenario, registry)
    return resolve_training(scenario, registry)


def size_job(scenario: Scenario, registry: Registry) -> TrainingEstimate:
    """The scenario sized. Raises InputError."""
    if reinforces(scenario):
        from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
        from xe_sizer.reinforcement.search import size as size_reinforcement

        return size_reinforcement(resolve_reinforcement(scenario, registry))
    return size_training(resolve_training(scenario, registry))


def advice_for(sized: TrainingEstimate, registry: Registry, most: int) -> tuple[Advice, ...]:
    """So many pieces of advice at most."""
    from xe_sizer.reinforcement.advice import advise as advise_reinforcement
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate

    if isinstance(sized, ReinforcementEstimate):
        return advise_reinforcement(sized, registry, most)
    return advise_training(sized, registry, most)


def gpus_of(scenario: Scenario, registry: Registry) -> int:
    """The GPUs that a scenario names, or needs. Raises InputError."""
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement

    resolved = resolve_job(scenario, registry)
    trainer = resolved.trainer if isinstance(resolved, ResolvedReinforcement) else resolved
    return trainer.gpus or size_job(scenario, registry).gpus


def estimate(scenario: Scenario, registry: Registry, details: bool = True, operators: bool = False) -> Result:
    """Size one job.

    details : False for its verdict alone, with the one change that mends a no
    operators : with its step operator by operator

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    if reinforces(scenario):
        return estimate_reinforcement(scenario, registry, details, operators)
    sized = size_training(resolve_training(scenario, registry))
    result = summarise_training(sized, details)
    if operators:
        result = with_operators(result, sized)
    return with_advice(result, result.verdict, advise_training(sized, registry, wanted(sized, details)))


# Everything that is wrong with a scenario, at once.


def with_further_problems(
    problems: Iterable[Problem], rest: Scenario, registry: Registry, serving: bool
) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and software have against the rest of it."""
    if serving:
        from xe_sizer.serving.resolve import with_further_problems as of_serving

        return of_serving(problems, rest, registry)
    if reinforces(rest):
        from xe_sizer.reinforcement.resolve import with_further_problems as of_reinforcement

        return of_reinforcement(problems, rest, registry)
    from xe_sizer.training.resolve import with_further_problems as of_training

    return of_training(problems, rest, registry)


# From a reinforcement-learning scenario to its result.


def estimate_reinforcement(
    scenario: Scenario, registry: Registry, details: bool = True, operators: bool = False
) -> Result:
    """Size one job that learns from answers of its own.

    details : False for its verdict alone, with the one change that mends a no
    operators : with an optimizer step of the actor operator by operator

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    from xe_sizer.reinforcement.advice import advise as advise_reinforcement
    from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
    from xe_sizer.reinforcement.search import size as size_reinforcement
    from xe_sizer.reinforcement.summary import summarise as summarise_reinforcement

    sized = size_reinforcement(resolve_reinforcement(scenario, registry), details)
    result = summarise_reinforcement(sized, details, operators)
    return with_advice(result, result.verdict, advise_reinforcement(sized, registry, wanted(sized, details)))


# From an inference scenario to its result.


def serve(scenario: Scenario, registry: Registry, details: bool = True) -> ServeResult:
    """Size one service on its own hardware.

    details : False for the verdict alone, with the one change that mends a no

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    from xe_sizer.serving.resolve import resolve as resolve_service
    from xe_sizer.serving.search import size as size_service
    from xe_sizer.studies.hardware import concluded

    return concluded(size_service(resolve_service(scenario, registry)), registry, details)
