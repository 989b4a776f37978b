"""The search over layouts: which fit, which is chosen, how ties are broken, and the fewest GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.errors import InputError, attempt
from xe_sizer.immutable import Immutable
from xe_sizer.scenario.schema import CostSection, LimitsSection
from xe_sizer.training.estimate import (
    DOES_NOT_FIT,
    FIRST_TO_FIT,
    FITS,
    FITS_WITH_ROOM,
    GROWTH,
    Choice,
    MinimumGpus,
    TrainingEstimate,
    keeps_limits,
    smallest_count,
)
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import FULL, Layouts
from xe_sizer.training.memory import fits, fitting, ledger_of, possible_of, spare_bytes
from xe_sizer.training.search_space import layout_chunks, legal_layouts, without_groups
from xe_sizer.training.step_time import timeline_of
from xe_sizer.training.uncertainty import memory_doubtful

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.job import Job
    from xe_sizer.training.memory import Ledger, Possible
    from xe_sizer.training.resolved import ResolvedTraining
    from xe_sizer.training.step_time import KeepsLimits

# What the model cannot tell apart, and which of it is taken: the plainer layout, then the one with more headroom.

# Errors of the ratio of two predictions, for published runs of one job that differ in their layout alone, or in the
# number of GPUs: the median of 18 and of 16 publications (scripts/pair_error.py).
LAYOUT_ERROR = 0.108
GPUS_ERROR = 0.080
TIE = 0.02  # chosen: layouts equally plain and so near in time are told apart by their headroom


def complexity(layouts: Layouts) -> IntArray:
    """Distance of a layout from the plainest, data parallelism alone, shape (layout,) [-].

        kinds of parallelism (tp, pp, ep, ZeRO 3) + ceil(log2 chunks a stage) + full recompute + groups of ZeRO
        + 2 x context parallelism + 2 x offload

    Every kind is one more thing to set up and to go wrong; context parallelism is for long sequences, many chunks a
    stage are rarer than few, and host memory brings its own limits. Selective recompute is what recipes do anyway.

    Parameters
    ----------
    layouts : of shape (layout,)

    Returns
    -------
    ndarray of int, shape (layout,) [-]

    Source: chosen.
    """
    kinds = sum((getattr(layouts, name) > 1).astype(np.int64) for name in ("tp", "pp", "ep"))
    kinds = kinds + (layouts.zero == 3) + (layouts.zero_group > 0) + 2 * (layouts.cp > 1)
    chunks = np.ceil(np.log2(layouts.vpp)).astype(np.int64)
    return np.asarray(kinds + chunks + (layouts.recompute == FULL) + 2 * (layouts.offload > 0))


def drawbacks(layouts: Layouts, doubtful: NDArray[np.bool_]) -> IntArray:
    """Rank layouts that are as fast as the model can tell, the lowest first, shape (layout,) [-].

        complexity + 2 x doubtful

    doubtful : whether memory is not likely to suffice, shape (layout,); as much of a risk as host memory is

    Source: chosen.
    """
    return np.asarray(complexity(layouts) + 2 * doubtful)


def preferred(layouts: Layouts, step_s: Array, peak_bytes: Array, doubtful: NDArray[np.bool_]) -> int:
    """Choose among layouts on the same GPUs: of those as fast as the model can tell the one to run.

    The one with the fewest drawbacks; of several the fastest, and within TIE of it that with the lowest peak, of
    equal peaks the faster.

    layouts, step_s, peak_bytes, doubtful : of shape (layout,), at least one
    """
    near = np.flatnonzero(step_s <= step_s.min() * (1.0 + LAYOUT_ERROR))
    first = drawbacks(layouts[near], doubtful[near])
    near = near[first == first.min()]
    near = near[step_s[near] <= step_s[near].min() * (1.0 + TIE)]
    return int(near[np.lexsort((step_s[near], peak_bytes[near]))[0]])


# The best layouts on every number of GPUs, out of all of them, in bounded memory.

Progress = Callable[[int], None]


class Frontier(Immutable):
    """One layout for every number of GPUs on which some layout fits, ascending.

    step_s, peak_bytes : of each layout
    considered, feasible : layouts that were legal, and those of them that fit
    complete : False where the search was interrupted
    """

    layouts: Layouts
    step_s: Array
    peak_bytes: Array
    considered: int
    feasible: int
    complete: bool


class Kept(Immutable):
    """Layouts that may still be the answer for their number of GPUs; `tight` have not the headroom asked for.

    pace_s : as by `Job.pace_s`; doubtful : where memory is not likely to suffice
    """

    layouts: Layouts
    pace_s: Array
    peak_bytes: Array
    tight: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]

    def __getitem__(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Kept:
        return Kept(
            self.layouts[index], self.pace_s[index], self.peak_bytes[index], self.tight[index], self.doubtful[index]
        )

    def __add__(self, other: Kept) -> Kept:
        return Kept(
            Layouts.joined([self.layouts, other.layouts]),
            np.concatenate([self.pace_s, other.pace_s]),
            np.concatenate([self.peak_bytes, other.peak_bytes]),
            np.concatenate([self.tight, other.tight]),
            np.concatenate([self.doubtful, other.doubtful]),
        )


def frontier(
    job: Job,
    chunks: Iterable[Layouts],
    min_headroom_bytes: float = 0.0,
    progress: Progress | None = None,
    keeps_limits: KeepsLimits | None = None,
    recommended_bytes: float | None = None,
    held: Callable[[Layouts], Possible | None] | None = None,
) -> Frontier:
    """Evaluate every layout and keep, for each number of GPUs on which some layout fits, the best.

    Layouts with something to spare go before those that fit by a hair, those in time before those that are late; of
    what is left `preferred` takes one. An interrupt ends the search with what has been found. Memory is computed
    first and time for what fits; nothing that fits is left out.

    progress : called with the number of layouts considered after each chunk
    keeps_limits : whether layouts with a step time [s] each keep the limits on time and price, shape (layout,)
    recommended_bytes : headroom of what has something to spare [bytes]; None: what any search asks
    held : which of a chunk may fit, with their memory; None: those whose states leave room on the card
    """
    spare = spare_bytes(job, min_headroom_bytes) if recommended_bytes is None else recommended_bytes
    kept: Kept | None = None
    considered = feasible = 0
    complete = True
    try:
        for chunk in chunks:
            possible = held(chunk) if held else possible_of(Evaluation(job, chunk), min_headroom_bytes)
            found, fitting = _fitting(possible, min_headroom_bytes, spare) if possible else (None, 0)
            if found is not None:
                kept = keep_best(found if kept is None else kept + found)
            considered, feasible = considered + len(chunk), feasible + fitting
            if progress:
                progress(considered)
    except KeyboardInterrupt:
        complete = False
    if kept is None:
        return Frontier(Layouts.none(), np.zeros(0), np.zeros(0), considered, feasible, complete)
    late = np.zeros(len(kept.layouts), dtype=bool)
    if keeps_limits:
        late = ~keeps_limits(kept.layouts, _step_s(job, kept))
    chosen = kept[_chosen(kept, late)]
    return Frontier(chosen.layouts, _step_s(job, chosen), chosen.peak_bytes, considered, feasible, complete)


def _step_s(job: Job, kept: Kept) -> Array:
    """Time of a step under each layout [s]."""
    return np.asarray(kept.pace_s * (kept.layouts.samples / job.global_batch))


def _fitting(possible: Possible, min_headroom_bytes: float, spare: float) -> tuple[Kept | None, int]:
    ledger, job = possible.ledger, possible.evaluation.job
    ok = np.flatnonzero(fits(ledger, job, min_headroom_bytes))
    if not ok.size:
        return None, 0
    roomy = fits(ledger, job, spare)[ok]
    fitting = possible.evaluation[ok]
    peaks, step_s = ledger.peak_bytes[ok], timeline_of(fitting).step_s
    layouts = fitting.layouts
    kept = Kept(layouts, job.pace_s(layouts, step_s), peaks, ~roomy, memory_doubtful(job, peaks))
    return keep_best(kept), int(ok.size)


def keep_best(found: Kept) -> Kept:
    """Keep what may be the answer for its number of GPUs: no slower than the model's error beyond the fastest there.

    Of layouts with as few drawbacks, those within TIE of the fastest whose peak no faster one undercuts.
    """
    group = found.layouts.gpus * 2 + found.tight
    found = found[found.pace_s <= _lowest_of(group, found.pace_s) * (1.0 + LAYOUT_ERROR)]
    _, place = np.unique(drawbacks(found.layouts, found.doubtful), return_inverse=True)
    group = (found.layouts.gpus * 2 + found.tight) * (place.max() + 1) + place
    near = found.pace_s <= _lowest_of(group, found.pace_s) * (1.0 + TIE)
    found, group = found[near], group[near]
    order = np.lexsort((found.peak_bytes, found.pace_s, group))
    keep = np.zeros(order.size, dtype=bool)
    lowest, current = np.inf, -1
    peaks = found.peak_bytes[order].tolist()
    for index, (this, peak) in enumerate(zip(group[order].tolist(), peaks, strict=True)):
        if this != current:
            lowest, current = np.inf, this
        if peak < lowest:
            keep[index], lowest = True, peak
    return found[order[keep]]


def _lowest_of(group: IntArray, values: Array) -> Array:
    """The lowest value of the group of each entry."""
    names, places = np.unique(group, return_inverse=True)
    lowest = np.full(names.size, np.inf)
    np.minimum.at(lowest, places, values)
    return np.asarray(lowest[places])


def _chosen(kept: Kept, late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One layout for each number of GPUs: roomy before tight, in time before late, then as `preferred`."""
    worse = kept.tight * 2 + late
    found = []
    for gpus in np.unique(kept.layouts.gpus):
        here = np.flatnonzero(kept.layouts.gpus == gpus)
        here = here[worse[here] == worse[here].min()]
        one = kept[here]
        found.append(here[preferred(one.layouts, one.pace_s, one.peak_bytes, one.doubtful)])
    return np.array(found)


# Evaluates layouts with the equations of the estimate: memory first, time for what fits.

CHUNK = 1 << 14  # layouts evaluated together: arrays stay in the cache and memory stays bounded


def _chunks(layouts: Layouts) -> Iterator[Layouts]:
    for start in range(0, len(layouts), CHUNK):
        yield layouts[start : start + CHUNK]


def choose(job: Job, layouts: Layouts, min_headroom_bytes: float) -> Choice:
    """Choose the best layout that fits with something to spare; else one that fits; else the one that misses by least.

    layouts : on one number of GPUs; at least one. The best of those that fit is what `preferred` takes.
    """
    if len(layouts) <= CHUNK:
        return choose_each(job, [layouts], min_headroom_bytes)[0]
    tried = [_tried(job, chunk, min_headroom_bytes) for chunk in _chunks(layouts)]
    ranks, peaks, seconds = (np.concatenate(columns) for columns in zip(*tried, strict=True))
    best = np.flatnonzero(ranks == ranks.min())
    place = int(np.argmin(peaks[best]))
    if ranks.min() < DOES_NOT_FIT:
        place = preferred(layouts[best], seconds[best], peaks[best], memory_doubtful(job, peaks[best]))
    index = int(best[place])
    chosen = Evaluation(job, layouts[index : index + 1])
    return Choice(
        evaluation=chosen,
        ledger=ledger_of(chosen),
        rank=int(ranks[index]),
        considered=len(layouts),
        feasible=int((ranks < DOES_NOT_FIT).sum()),
    )


def _tried(job: Job, layouts: Layouts, min_headroom_bytes: float) -> tuple[IntArray, Array, Array]:
    """Rank, peak [bytes] and pace of each layout [s], as by `Job.pace_s`; infinite where it does not fit."""
    evaluation = Evaluation(job, layouts)
    ledger = ledger_of(evaluation)
    ranks = _ranks(job, ledger, len(layouts), min_headroom_bytes)
    seconds = np.full(len(layouts), np.inf)
    ok = np.flatnonzero(ranks < DOES_NOT_FIT)
    if ok.size:
        seconds[ok] = job.pace_s(layouts[ok], timeline_of(evaluation[ok]).step_s)
    return ranks, ledger.peak_bytes, seconds


def _ranks(job: Job, ledger: Ledger, size: int, min_headroom_bytes: float) -> IntArray:
    """FITS_WITH_ROOM, FITS or DOES_NOT_FIT of each of so many layouts."""
    ranks = np.full(size, DOES_NOT_FIT)
    ranks[fits(ledger, job, min_headroom_bytes)] = FITS
    ranks[fits(ledger, job, spare_bytes(job, min_headroom_bytes))] = FITS_WITH_ROOM
    return ranks


def choose_each(job: Job, sets: Sequence[Layouts], min_headroom_bytes: float) -> list[Choice]:
    """Choose the best of each set of layouts of one job, as by `choose`; all of them are evaluated as one array.

    No set may be empty.
    """
    every = Layouts.joined(sets) if len(sets) > 1 else sets[0]
    evaluation = Evaluation(job, every)
    ledger = ledger_of(evaluation)
    ranks = _ranks(job, ledger, len(every), min_headroom_bytes)
    ends = np.cumsum([len(one) for one in sets])
    starts = [end - len(one) for one, end in zip(sets, ends.tolist(), strict=True)]
    of_sets = [(start, ranks[start : start + len(one)]) for start, one in zip(starts, sets, strict=True)]
    best = [start + np.flatnonzero(of_set == of_set.min()) for start, of_set in of_sets]
    fitting = np.concatenate([indices[ranks[indices] < DOES_NOT_FIT] for indices in best])
    times = timeline_of(evaluation[fitting]) if fitting.size else None
    found, timed = [], 0
    for one, end, indices in zip(sets, ends.tolist(), best, strict=True):
        index, at = int(indices[np.argmin(ledger.peak_bytes[indices])]), None
        if times is not None and ranks[index] < DOES_NOT_FIT:
            seconds = job.pace_s(every[indices], times.step_s[timed : timed + indices.size])
            peaks = ledger.peak_bytes[indices]
            place = preferred(every[indices], seconds, peaks, memory_doubtful(job, peaks))
            index, at = int(indices[place]), times.at(timed + place)
            timed += indices.size
        feasible = int((ranks[end - len(one) : end] < DOES_NOT_FIT).sum())
        choice = Choice(
            evaluation=evaluation[index : index + 1] if at is None else at.evaluation,
            ledger=ledger.at(index),
            rank=int(ranks[index]),
            considered=len(one),
            feasible=feasible,
            known_timeline=at,
        )
        found.append(choice)
    return found


def counts_that_keep(
    job: Job,
    chunks: Iterable[Layouts],
    min_headroom_bytes: float,
    keeps_limits: KeepsLimits,
) -> Iterator[int]:
    """Find the numbers of GPUs, ascending as the layouts are, on which some layout fits and keeps the limits.

    keeps_limits : of layouts and times of a step [s], both of shape (layout,)
    """
    for chunk in chunks:
        evaluation = Evaluation(job, chunk)
        ok = fitting(evaluation, min_headroom_bytes)
        if ok.size:
            layouts = chunk[ok]
            kept = keeps_limits(layouts, timeline_of(evaluation[ok]).step_s)
            yield from np.unique(layouts.gpus[kept]).tolist()


# A resolved training scenario to its estimate: how many GPUs, and which layout on them.

FIRST_TO_MEET = 512  # combinations that a search over ascending numbers of GPUs looks at first for a limit


def size(resolved: ResolvedTraining) -> TrainingEstimate:
    """Choose the GPU count (where it is open) and the layout.

    Raises
    ------
    InputError : no legal layout on the GPUs asked for
    """
    minimum = MinimumGpus(resolved)
    return _smallest_that_meets(minimum) if resolved.gpus is None else _sized(minimum, resolved.gpus)


def _sized(minimum: MinimumGpus, gpus: int) -> TrainingEstimate:
    """The scenario on so many GPUs, with the batch that is assumed for them. Raises InputError: no layout is legal."""
    resolved = minimum.resolved.fitted_to(gpus)
    layouts = legal_layouts(resolved.rules, (gpus,))
    if not len(layouts):
        raise InputError(resolved.no_layout((gpus,)))
    choice = choose(resolved.job, layouts, resolved.min_headroom_bytes)
    if not choice.fits_with_headroom and (found := _as_planned(resolved, gpus)):
        return found
    under = resolved.under(choice.layouts)
    if under.job is not choice.job:
        choice = replace(choice, evaluation=Evaluation(under.job, choice.layouts))
    return TrainingEstimate(under, gpus, choice, minimum)


def _as_planned(resolved: ResolvedTraining, gpus: int) -> TrainingEstimate | None:
    """What `plan` takes on so many GPUs, where the whole layout is open: all that the stack supports is tried then.

    None where nothing fits so either, and of a layout that the user gave a part of, which is judged as it is.
    """
    if resolved.fixed:
        return None
    rules = replace(resolved.rules, every_way=True)
    chunks = layout_chunks(rules, (gpus,), FIRST_TO_FIT, least_memory=True, growth=GROWTH)
    if smallest_count(resolved.job, chunks, resolved.min_headroom_bytes) is None:
        return None
    return next(iter(_candidates_on(resolved, (gpus,), None, every_way=True).sized), None)


def size_each(resolved: Sequence[ResolvedTraining]) -> list[TrainingEstimate | None]:
    """One job on given numbers of GPUs or under given layouts, evaluated as one array; None where none is legal."""
    sets = [legal_layouts(one.rules, (one.gpus or 1,)) for one in resolved]
    legal = [place for place, layouts in enumerate(sets) if len(layouts)]
    estimates: list[TrainingEstimate | None] = [None] * len(sets)
    if legal:
        job, headroom_bytes = resolved[0].job, resolved[0].min_headroom_bytes
        choices = choose_each(job, [sets[place] for place in legal], headroom_bytes)
        for place, choice in zip(legal, choices, strict=True):
            one, gpus = resolved[place], resolved[place].gpus or 1
            planned = None if choice.fits_with_headroom else _as_planned(one, gpus)
            estimates[place] = planned or TrainingEstimate(one, gpus, choice, MinimumGpus(one))
    return estimates


def size_all(resolved: Sequence[ResolvedTraining]) -> list[TrainingEstimate | InputError]:
    """Size several scenarios, as `size` does each; those of one job on given numbers of GPUs go as one array."""
    estimates: list[TrainingEstimate | InputError | None] = [None] * len(resolved)
    alike: dict[object, list[int]] = {}
    for place, one in enumerate(resolved):
        follows = one.gpus is None or one.at_replicas or one.at_batch  # a batch that the layout or the GPUs make
        alike.setdefault(place if follows else _job_key(one), []).append(place)
    for places in alike.values():
        if len(places) > 1:
            job = resolved[places[0]].job
            together = size_each([replace(resolved[place], job=job) for place in places])
            for place, estimate in zip(places, together, strict=True):
                estimates[place] = estimate or InputError(resolved[place].no_layout((resolved[place].gpus or 1,)))
        else:
            estimates[places[0]] = attempt(size, resolved[places[0]])
    return [estimate for estimate in estimates if estimate is not None]


def _job_key(resolved: ResolvedTraining) -> bytes:
    """What a job is made of: all keys, with defaults filled in, but for the GPUs, limits and prices."""
    values = replace(resolved.values, gpus=None, nodes=None, limits=LimitsSection(), cost=CostSection())
    return msgspec.json.encode((values, resolved.min_headroom_bytes))


def _smallest_that_meets(minimum: MinimumGpus) -> TrainingEstimate:
    """The fewest GPUs that fit and meet every limit; where none do, the fewest that fit, or one node."""
    resolved, rules, enough = minimum.resolved, minimum.resolved.rules, minimum.that_fit_unasked
    if enough is None and not resolved.fixed:
        rules, enough = replace(rules, every_way=True), minimum.that_fit
    node = resolved.job.server.accelerators
    few = enough or max(count for count in minimum.counts if count <= node)
    first = _sized(minimum, few)
    if enough is None or first.ok:
        return first
    more = [count for count in minimum.counts if count > enough]
    chunks = layout_chunks(rules, more, FIRST_TO_MEET, growth=GROWTH)
    in_limits = partial(keeps_limits, resolved)
    for count in counts_that_keep(resolved.job, chunks, resolved.recommended_bytes, in_limits):
        estimate = _sized(minimum, count)
        if estimate.ok:
            fewer = minimum.with_fitted_batch(rules, count, _keeps_limits)
            return estimate if fewer == count else _sized(minimum, fewer or count)
    return first


def _keeps_limits(minimum: MinimumGpus, count: int) -> bool:
    """Whether a job keeps its limits on so many GPUs."""
    return bool(len(legal_layouts(minimum.resolved.rules, (count,)))) and _sized(minimum, count).ok


# The best layout on every number of GPUs: the candidates of a plan.

CANDIDATES_CHUNK = 1 << 16  # layouts: few enough for the memory, many enough to share their ranks' shapes


class Candidates(Immutable):
    """One kind of hardware with its estimated candidates. tried : numbers of GPUs over which a layout can be spread."""

    resolved: ResolvedTraining
    sized: tuple[TrainingEstimate, ...]
    considered: int
    feasible: int
    complete: bool
    tried: tuple[int, ...] = ()

    def of_a_whole_search(self) -> tuple[TrainingEstimate, ...]:
        """Those of a search that nobody interrupted. Raises KeyboardInterrupt."""
        if not self.complete:
            raise KeyboardInterrupt
        return self.sized


def onward(progress: Progress | None, before: int) -> Progress | None:
    """Reports of one search added to those of the searches before it."""
    return None if progress is None else lambda considered: progress(before + considered)


def candidates(resolved: ResolvedTraining, progress: Progress | None = None, every_way: bool = True) -> Candidates:
    """The best layout on every number of GPUs, estimated; `every_way` as in `Rules`."""
    found = _candidates_on(resolved, resolved.planned_gpus, progress, every_way)
    if resolved.at_batch is None:
        return found
    # Numbers of GPUs, ascending, that the assumed global batch rules out and one fitted to them does not.
    missed = [count for count in resolved.planned_gpus if count not in found.tried]
    fitted = ((count, replace(resolved.fitted_to(count).rules, every_way=every_way)) for count in missed)
    missed = [count for count, rules in fitted if not without_groups(rules, (count,))]
    for good in (lambda one: one.fits, lambda one: one.ok):
        while found.complete and (between := [count for count in missed if _may_be_fewest(found, count, good)]):
            count = between[len(between) // 2]
            more = _candidates_on(resolved.fitted_to(count), (count,), onward(progress, found.considered), every_way)
            found = Candidates(
                resolved=resolved,
                sized=(*found.sized, *more.sized),
                considered=found.considered + more.considered,
                feasible=found.feasible + more.feasible,
                complete=more.complete,
                tried=(*found.tried, *more.tried),
            )
    return found


def _candidates_on(
    resolved: ResolvedTraining, counts: tuple[int, ...], progress: Progress | None, every_way: bool
) -> Candidates:
    """The best layout on each of the numbers of GPUs over which the global batch can be split."""
    rules = replace(resolved.rules, every_way=every_way)
    chunks, in_limits = layout_chunks(rules, counts, CANDIDATES_CHUNK), partial(keeps_limits, resolved)
    room, spare = resolved.min_headroom_bytes, resolved.recommended_bytes
    best = frontier(resolved.job, chunks, room, progress, in_limits, spare)
    skipped = without_groups(rules, counts)
    tried = tuple(count for count in counts if count not in skipped)
    sized = tuple(_estimated(resolved, best))
    return Candidates(resolved, sized, best.considered, best.feasible, best.complete, tried)


def _estimated(resolved: ResolvedTraining, best: Frontier) -> Iterator[TrainingEstimate]:
    """Each layout of a frontier, with the batch that is assumed for it; memory and time of all are one array."""
    if not len(best.layouts):
        return
    line = timeline_of(Evaluation(resolved.job, best.layouts))
    ledger = ledger_of(line.evaluation)
    for index, gpus in enumerate(best.layouts.gpus.tolist()):
        row = best.layouts[index : index + 1]
        under = resolved.under(row)
        choice = Choice(
            evaluation=Evaluation(under.job, row),
            ledger=ledger.at(index),
            rank=FITS,
            considered=best.considered,
            feasible=best.feasible,
            known_timeline=line.at(index),
        )
        yield TrainingEstimate(under, gpus, choice, MinimumGpus(resolved))


def _may_be_fewest(found: Candidates, count: int, good: Callable[[TrainingEstimate], bool]) -> bool:
    """Whether so many GPUs are fewer than all that do, and more than all below these that do not.

    What some GPUs do not, fewer do not either.
    """
    enough = {one.gpus for one in found.sized if good(one)}
    most = min(enough, default=math.inf)
    return max((tried for tried in found.tried if tried < most), default=0) < count < most
