"""A scenario that trains, resolved and sized, whatever its job learns from: data, or answers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.reinforcement.advice import advise as advise_reinforcement
from xe_sizer.reinforcement.asked import reinforces
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
from xe_sizer.reinforcement.resolved import ResolvedReinforcement
from xe_sizer.reinforcement.sizing import size as size_reinforcement
from xe_sizer.training.advice import advise as advise_training
from xe_sizer.training.resolve import resolve as resolve_training
from xe_sizer.training.sizing import size as size_training

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.common import Advice
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining


def resolve_job(given: Given, registry: Registry) -> ResolvedTraining | ResolvedReinforcement:
    """Everything that sizing needs. Raises InputError."""
    return (resolve_reinforcement if reinforces(given) else resolve_training)(given, registry)


def size_job(given: Given, registry: Registry) -> TrainingEstimate:
    """The scenario sized. Raises InputError."""
    resolved = resolve_job(given, registry)
    return size_reinforcement(resolved) if isinstance(resolved, ResolvedReinforcement) else size_training(resolved)


def advice_for(sized: TrainingEstimate, registry: Registry, most: int) -> tuple[Advice, ...]:
    """So many pieces of advice at most."""
    if isinstance(sized, ReinforcementEstimate):
        return advise_reinforcement(sized, registry, most)
    return advise_training(sized, registry, most)


def gpus_of(given: Given, registry: Registry) -> int:
    """The GPUs that a scenario names, or needs. Raises InputError."""
    resolved = resolve_job(given, registry)
    trainer = resolved.trainer if isinstance(resolved, ResolvedReinforcement) else resolved
    return trainer.gpus or size_job(given, registry).gpus
