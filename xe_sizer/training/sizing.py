"""A resolved training scenario to its estimate: how many GPUs, and which layout on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.training.choose import choose, choose_each, counts_that_keep
from xe_sizer.training.estimate import TrainingEstimate, keeps_limits
from xe_sizer.training.fewest import GROWTH, Fewest
from xe_sizer.training.space import layout_chunks, legal_layouts

if TYPE_CHECKING:
    from xe_sizer.training.resolved import ResolvedTraining

FIRST_TO_MEET = 512  # combinations that a search over ascending numbers of GPUs looks at first for a limit


def size(resolved: ResolvedTraining) -> TrainingEstimate:
    """Choose the GPU count (where it is open) and the layout.

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    fewest = Fewest(resolved)
    return _smallest_that_meets(fewest) if resolved.gpus is None else _sized(fewest, resolved.gpus)


def _sized(fewest: Fewest, gpus: int) -> TrainingEstimate:
    """The scenario on so many GPUs, with the batch that is assumed for them. Raises InputError: no layout is legal."""
    resolved = fewest.resolved.fitted_to(gpus)
    layouts = legal_layouts(resolved.rules, (gpus,))
    if not len(layouts):
        raise InputError(resolved.no_layout((gpus,)))
    choice = choose(resolved.job, layouts, resolved.min_headroom_bytes)
    under = resolved.under(choice.layouts)
    return TrainingEstimate(under, gpus, replace(choice, job=under.job), fewest)


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
            estimates[place] = TrainingEstimate(one, one.gpus or 1, choice, Fewest(one))
    return estimates


def _smallest_that_meets(fewest: Fewest) -> TrainingEstimate:
    """The fewest GPUs that fit and meet every limit; where none do, the fewest that fit, or one node."""
    resolved, enough, node = fewest.resolved, fewest.that_fit_unasked, fewest.resolved.job.server.accelerators
    few = enough or max(count for count in fewest.counts if count <= node)
    first = _sized(fewest, few)
    if enough is None or first.ok:
        return first
    more = [count for count in fewest.counts if count > enough]
    chunks = layout_chunks(resolved.rules, more, FIRST_TO_MEET, growth=GROWTH)
    in_limits = partial(keeps_limits, resolved)
    for count in counts_that_keep(resolved.job, chunks, resolved.min_headroom_bytes, in_limits):
        estimate = _sized(fewest, count)
        if estimate.ok:
            fewer = fewest.with_fitted_batch(resolved.rules, count, _keeps_limits)
            return estimate if fewer == count else _sized(fewest, fewer or count)
    return first


def _keeps_limits(fewest: Fewest, count: int) -> bool:
    """Whether a job keeps its limits on so many GPUs."""
    return bool(len(legal_layouts(fewest.resolved.rules, (count,)))) and _sized(fewest, count).ok
