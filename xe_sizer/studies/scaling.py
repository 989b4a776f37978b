"""One job over numbers of GPUs that double."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import (
    Scaling,
    ScalingPoint,
)
from xe_sizer.studies.estimate import job_wing
from xe_sizer.training.summary import COMPUTE, build_layout, longest_part, scenario_with_origins

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.scenario import Scenario
    from xe_sizer.training.estimate import TrainingEstimate


def scaling(scenario: Scenario, registry: Registry, weak: bool = False) -> Scaling:
    """The job on numbers of GPUs that double: the same batch (strong), or one that grows with the GPUs (weak).

    Efficiency is the samples per second per GPU, relative to the fewest GPUs that fit. Raises InputError.
    """
    wing = job_wing(scenario)
    open_ = wing.resolve(scenario, registry).on_any_gpus()
    if weak and not open_.batch_is_free:
        hint = "prompts and batch grow with the GPUs where scenarios say so: rollout.prompts, train.global_batch"
        raise InputError(Problem("reinforcement learning is scaled with its batch as it is", scenario.locate(()), hint))
    searched = wing.candidates(open_)
    found: dict[int, TrainingEstimate] = {}
    for one in searched.of_a_whole_search():
        if one.gpus not in found or one.step_s < found[one.gpus].step_s:
            found[one.gpus] = one
    points: list[ScalingPoint] = []
    counts = [count for count in open_.planned_gpus if found and count >= min(found)] if weak else sorted(found)
    for count in _doubling(counts):
        if weak:  # the best with a batch in proportion to the GPUs
            batch = max(round(open_.job.global_batch * count / min(found)), 1)
            grown = replace(open_, job=replace(open_.job, global_batch=batch), gpus=count)
            sized = next(iter(wing.candidates(grown).of_a_whole_search()), None)
        else:
            sized = found[count]
        if sized is not None:
            points.append(_point(sized, points[0] if points else None))
    kind, shown = "weak" if weak else "strong", scenario_with_origins(searched.resolved)
    return Scaling(schema_version=SCHEMA_VERSION, scenario=shown, kind=kind, points=tuple(points))


def _doubling(counts: Sequence[int]) -> Iterator[int]:
    """Ascending numbers, each at least twice the one before."""
    last = 0
    for count in counts:
        if count >= 2 * last:
            last = count
            yield count


def _point(sized: TrainingEstimate, first: ScalingPoint | None) -> ScalingPoint:
    job = sized.resolved.job
    samples_per_s = sized.samples_per_s
    alone = first.global_batch / first.step_s / first.gpus if first else samples_per_s / sized.gpus
    seconds = sized.component_s
    return ScalingPoint(
        gpus=sized.gpus,
        global_batch=job.global_batch,
        layout=build_layout(sized.layouts),
        step_s=sized.step_s,
        tokens_per_s=sized.tokens_per_s,
        efficiency=samples_per_s / sized.gpus / alone,
        bound=longest_part(seconds),
        lost=longest_part({**seconds, **dict.fromkeys(COMPUTE, 0.0)}),  # what takes most and is not compute
    )
