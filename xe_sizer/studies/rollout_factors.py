"""The factors of reinforcement learning whose worth is told: answers, prompts, model, batch, and the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.reinforcement.remedies import at_the_same_time, interrupted_answers, narrow_weights, open_sharing
from xe_sizer.studies.factors import Step

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate

FACTORS = (("half", 0.5), ("twice", 2.0))
CLEARLY = 1.1  # a step of a factor changes it by more than this


def of_iterations(base: ReinforcementEstimate, registry: Registry) -> tuple[tuple[str, list[Step]], ...]:
    """The factors, each with its steps."""
    return (
        ("answer length", [*_answers(base)]),
        ("prompts of an iteration", [*_prompts(base)]),
        ("model size", [*_models(base, registry)]),
        ("batch size", [*_batches(base)]),
        ("GPUs and links", [*_gpus(base)]),
        ("sharing of the GPUs", [*_sharing(base, registry)]),
        ("writing of answers", [*_writing(base, registry)]),
    )


def _answers(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the tokens of an answer, and of the longest."""
    settings = base.reinforcement.settings
    for words, factor in FACTORS:
        mean, most = settings.answers.mean * factor, max(round(settings.max_output_tokens * factor), 1)
        values = {"rollout.output_tokens": mean, "rollout.max_output_tokens": most}
        yield Step(f"answers {words} as long", values)


def _prompts(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the prompts, in as many optimizer steps, over as many prompts in all."""
    settings, resolved = base.reinforcement.settings, base.reinforcement
    for words, factor in FACTORS:
        values = {
            "rollout.prompts": max(round(settings.asked.prompts * settings.kept * factor), 1),
            "train.global_batch": max(round(resolved.actor.global_batch * factor), 1),
            "train.steps": max(round(resolved.iterations / factor), 1),
        }
        yield Step(f"{words} the prompts", values)


def _models(base: ReinforcementEstimate, registry: Registry) -> Iterator[Step]:
    """The next smaller and the next larger model of the family."""
    for name in registry.neighbours(base.resolved.job.model, CLEARLY):
        yield Step(name, {"model": name})


def _batches(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the answers of an optimizer step, of which an iteration then has twice and half as many."""
    batch, answers = base.resolved.job.global_batch, base.reinforcement.settings.trained
    for words, factor in FACTORS:
        if batch * factor <= answers:
            yield Step(f"{words} the batch", {"train.global_batch": max(round(batch * factor), 1)})


def _gpus(base: ReinforcementEstimate) -> Iterator[Step]:
    """Half and twice the GPUs, of both pools."""
    for words, factor in FACTORS:
        values: dict[str, object] = {"gpus": round(base.gpus * factor)}
        if not base.iteration.colocated:
            values["rollout.gpus"] = max(round(base.iteration.rollout.gpus * factor), 1)
        if base.gpus * factor >= 1:
            yield Step(f"{words} the GPUs", values)


def _sharing(base: ReinforcementEstimate, registry: Registry) -> Iterator[Step]:
    """The other way to share the GPUs, and pools that work at the same time."""
    for change in (*open_sharing(base, registry), *at_the_same_time(base, registry)):
        yield Step(change.words, change.values)


def _writing(base: ReinforcementEstimate, registry: Registry) -> Iterator[Step]:
    """Interrupted answers, and narrower weights."""
    for change in (*interrupted_answers(base, registry), *narrow_weights(base, registry)):
        yield Step(change.words, change.values)
