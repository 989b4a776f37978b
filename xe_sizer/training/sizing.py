"""A resolved training scenario to its estimate: how many GPUs, and which layout on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.training.choose import choose, choose_each, counts_that_keep, smallest_count
from xe_sizer.training.estimate import TrainingEstimate, keeps_limits
from xe_sizer.training.space import LARGEST_SEARCH, gpu_counts, layout_chunks, legal_layouts

if TYPE_CHECKING:
    from xe_sizer.training.resolved import ResolvedTraining

# Combinations that a search over ascending numbers of GPUs looks at first, and how much further it goes each time:
# most jobs fit on few, and what is looked at in vain takes time.
FIRST_TO_FIT, FIRST_TO_MEET, GROWTH = 64, 512, 4


def size(resolved: ResolvedTraining) -> TrainingEstimate:
    """Choose the GPU count (where it is open) and the layout.

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    counts = _counts(resolved)
    if resolved.gpus is None:
        return _smallest_that_meets(resolved, counts)
    return _sized(resolved, resolved.gpus, partial(_fewest, resolved, counts))


def _counts(resolved: ResolvedTraining) -> tuple[int, ...]:
    """The numbers of GPUs among which the fewest are looked for."""
    if not resolved.job.stack.supports.several_gpus:
        return (1,)
    most = resolved.given.values.limits.max_gpus or max(LARGEST_SEARCH, resolved.gpus or 0)
    return gpu_counts(resolved.job.server.accelerators, most)


def _fewest(resolved: ResolvedTraining, counts: Collection[int]) -> int | None:
    """The first of the ascending counts at which some layout fits."""
    chunks = layout_chunks(resolved.rules, counts, FIRST_TO_FIT, least_memory=True, growth=GROWTH)
    return smallest_count(resolved.job, chunks, resolved.min_headroom_bytes)


def _sized(resolved: ResolvedTraining, gpus: int, find_minimum: Callable[[], int | None]) -> TrainingEstimate:
    """The scenario on so many GPUs. Raises InputError where no layout is legal."""
    layouts = legal_layouts(resolved.rules, (gpus,))
    if not len(layouts):
        raise InputError(resolved.no_layout((gpus,)))
    choice = choose(resolved.job, layouts, resolved.min_headroom_bytes)
    return TrainingEstimate(resolved, gpus, choice, find_minimum)


def size_each(resolved: Sequence[ResolvedTraining]) -> list[TrainingEstimate | None]:
    """One job on given numbers of GPUs or under given layouts, evaluated as one array; None where none is legal."""
    sets = [legal_layouts(one.rules, (one.gpus or 1,)) for one in resolved]
    legal = [place for place, layouts in enumerate(sets) if len(layouts)]
    estimates: list[TrainingEstimate | None] = [None] * len(sets)
    if legal:
        job, headroom_bytes = resolved[0].job, resolved[0].min_headroom_bytes
        choices = choose_each(job, [sets[place] for place in legal], headroom_bytes)
        for place, choice in zip(legal, choices, strict=True):
            one = resolved[place]
            find_minimum = partial(_fewest, one, _counts(one))
            estimates[place] = TrainingEstimate(one, one.gpus or 1, choice, find_minimum)
    return estimates


def _smallest_that_meets(resolved: ResolvedTraining, counts: tuple[int, ...]) -> TrainingEstimate:
    """The fewest GPUs that fit and meet every limit; where none do, the fewest that fit, or one node."""
    find_minimum = cache(partial(_fewest, resolved, counts))
    minimum = find_minimum()
    node = resolved.job.server.accelerators
    few = minimum or max((count for count in counts if count <= node), default=1)
    first = _sized(resolved, few, find_minimum)
    if minimum is None or first.ok:
        return first
    more = [count for count in counts if count > minimum]
    chunks = layout_chunks(resolved.rules, more, FIRST_TO_MEET, growth=GROWTH)
    in_limits = partial(keeps_limits, resolved)
    for count in counts_that_keep(resolved.job, chunks, resolved.min_headroom_bytes, in_limits):
        estimate = _sized(resolved, count, find_minimum)
        if estimate.ok:
            return estimate
    return first
