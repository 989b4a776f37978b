"""One job over numbers of GPUs that double."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.reinforcement.resolve import resolve as resolve_reinforcement
from xe_sizer.result.common import SCHEMA_VERSION
from xe_sizer.result.studies import (
    Scaling,
    ScalingPoint,
)
from xe_sizer.studies.estimate import reinforces
from xe_sizer.studies.plan import candidates_of, gpu_numbers, searched
from xe_sizer.training.resolve import resolve
from xe_sizer.training.summary import COMPUTE, build_layout, longest_part, scenario_with_origins

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.read import Given
    from xe_sizer.training.estimate import TrainingEstimate
    from xe_sizer.training.resolved import ResolvedTraining


def scaling(given: Given, registry: Registry, weak: bool = False) -> Scaling:
    """The job on numbers of GPUs that double: the same batch (strong), or one that grows with the GPUs (weak).

    Efficiency is the samples per second per GPU, relative to the fewest GPUs that fit. Raises InputError.
    """
    if reinforces(given):
        return _of_iterations(given, registry, weak)
    resolved = resolve(given, registry)
    open_ = replace(resolved.without_layout(), gpus=None)
    found = {one.gpus: one for one in searched(open_)}
    points: list[ScalingPoint] = []
    counts = [count for count in gpu_numbers(open_) if found and count >= min(found)] if weak else sorted(found)
    for count in _doubling(counts):
        sized = _weak(open_, count, min(found)) if weak else found[count]
        if sized is not None:
            points.append(_point(sized, points[0] if points else None))
    kind = "weak" if weak else "strong"
    return Scaling(
        schema_version=SCHEMA_VERSION, scenario=scenario_with_origins(resolved), kind=kind, points=tuple(points)
    )


def _of_iterations(given: Given, registry: Registry, weak: bool) -> Scaling:
    """The same iterations on numbers of GPUs that double, shared in the way that takes the least time.

    Raises InputError where the batch shall grow: the prompts of an iteration make it, and a scenario says how many.
    """
    if weak:
        hint = "prompts and batch grow with the GPUs where scenarios say so: rollout.prompts, train.global_batch"
        raise InputError(Problem("reinforcement learning is scaled with its batch as it is", given.locate(()), hint))
    resolved = resolve_reinforcement(given, registry)
    open_ = replace(resolved, trainer=replace(resolved.trainer.without_layout(), gpus=None))
    found: dict[int, TrainingEstimate] = {}
    for one in candidates_of(open_).sized:
        if one.gpus not in found or one.step_s < found[one.gpus].step_s:
            found[one.gpus] = one
    points: list[ScalingPoint] = []
    for count in _doubling(sorted(found)):
        points.append(_point(found[count], points[0] if points else None))
    scenario = scenario_with_origins(resolved.trainer)
    return Scaling(schema_version=SCHEMA_VERSION, scenario=scenario, kind="strong", points=tuple(points))


def _doubling(counts: Sequence[int]) -> Iterator[int]:
    """Ascending numbers, each at least twice the one before."""
    last = 0
    for count in counts:
        if count >= 2 * last:
            last = count
            yield count


def _weak(resolved: ResolvedTraining, count: int, fewest: int) -> TrainingEstimate | None:
    """The best on so many GPUs with a batch in proportion to them."""
    job = resolved.job
    batch = max(round(job.global_batch * count / fewest), 1)
    grown = replace(resolved, job=replace(job, global_batch=batch), gpus=count)
    return next(iter(searched(grown)), None)


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
        lost=_mostly_lost(seconds),
    )


def _mostly_lost(seconds: Mapping[str, float]) -> str:
    """The part of a step that is not compute and takes most."""
    return longest_part({**seconds, **dict.fromkeys(COMPUTE, 0.0)})
