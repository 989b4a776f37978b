"""Evaluates layouts with the equations of the estimate: memory first, time for what fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, fitting, memory_ledger, spare_bytes
from xe_sizer.training.step import timeline
from xe_sizer.training.ties import preferred
from xe_sizer.training.uncertainty import memory_doubtful

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.job import Job
    from xe_sizer.training.memory import Ledger
    from xe_sizer.training.padding import Sequences
    from xe_sizer.training.step import KeepsLimits, Timeline

CHUNK = 1 << 14  # layouts evaluated together: arrays stay in the cache and memory stays bounded
FITS_WITH_ROOM, FITS, DOES_NOT_FIT = range(3)


@frozen
class Choice:
    """The best of many layouts with its memory; time is computed when it is asked for.

    rank : FITS_WITH_ROOM, FITS (both with the headroom asked for) or DOES_NOT_FIT
    considered, feasible : layouts to choose from, and those of them that fit
    """

    job: Job
    layouts: Layouts
    ledger: Ledger
    rank: int
    considered: int
    feasible: int
    known_timeline: Timeline | None = None

    @property
    def fits_with_headroom(self) -> bool:
        return self.rank < DOES_NOT_FIT

    @cached_property
    def timeline(self) -> Timeline:
        return self.known_timeline or timeline(self.job, self.layouts)

    @property
    def sequences(self) -> Sequences:
        """What padding makes of the data under the layout."""
        return self.timeline.sequences


def _chunks(layouts: Layouts) -> Iterator[Layouts]:
    for start in range(0, len(layouts), CHUNK):
        yield layouts[start : start + CHUNK]


def choose(job: Job, layouts: Layouts, min_headroom_bytes: float) -> Choice:
    """The best layout that fits with something to spare; else one that fits; else the one that misses by least.

    layouts : on one number of GPUs; at least one. The best of those that fit is what `ties.preferred` takes.
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
    row = layouts[index : index + 1]
    return Choice(
        job=job,
        layouts=row,
        ledger=memory_ledger(job, row),
        rank=int(ranks[index]),
        considered=len(layouts),
        feasible=int((ranks < DOES_NOT_FIT).sum()),
    )


def _tried(job: Job, layouts: Layouts, min_headroom_bytes: float) -> tuple[IntArray, Array, Array]:
    """Rank, peak [bytes] and pace of each layout [s], as by `Job.pace_s`; infinite where it does not fit."""
    ledger = memory_ledger(job, layouts)
    ranks = _ranks(job, ledger, len(layouts), min_headroom_bytes)
    seconds = np.full(len(layouts), np.inf)
    ok = np.flatnonzero(ranks < DOES_NOT_FIT)
    if ok.size:
        seconds[ok] = job.pace_s(layouts[ok], timeline(job, layouts[ok]).step_s)
    return ranks, ledger.peak_bytes, seconds


def _ranks(job: Job, ledger: Ledger, size: int, min_headroom_bytes: float) -> IntArray:
    """FITS_WITH_ROOM, FITS or DOES_NOT_FIT of each of so many layouts."""
    ranks = np.full(size, DOES_NOT_FIT)
    ranks[fits(ledger, job, min_headroom_bytes)] = FITS
    ranks[fits(ledger, job, spare_bytes(job, min_headroom_bytes))] = FITS_WITH_ROOM
    return ranks


def choose_each(job: Job, sets: Sequence[Layouts], min_headroom_bytes: float) -> list[Choice]:
    """The best of each set of layouts of one job, as by `choose`; all of them are evaluated as one array.

    No set may be empty.
    """
    every = Layouts.joined(sets) if len(sets) > 1 else sets[0]
    ledger = memory_ledger(job, every)
    ranks = _ranks(job, ledger, len(every), min_headroom_bytes)
    ends = np.cumsum([len(one) for one in sets])
    best = [_of_best_rank(ranks, end - len(one), end) for one, end in zip(sets, ends.tolist(), strict=True)]
    fitting = np.concatenate([indices[ranks[indices] < DOES_NOT_FIT] for indices in best])
    times = timeline(job, every[fitting]) if fitting.size else None
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
        layouts = every[index : index + 1]
        choice = Choice(
            job=job,
            layouts=layouts,
            ledger=ledger.at(index),
            rank=int(ranks[index]),
            considered=len(one),
            feasible=feasible,
            known_timeline=at,
        )
        found.append(choice)
    return found


def _of_best_rank(ranks: IntArray, start: int, end: int) -> IntArray:
    """Indices from `start` up to, not including, `end` at which the rank is the best one of that range."""
    inside = ranks[start:end]
    return start + np.flatnonzero(inside == inside.min())


def counts_that_keep(
    job: Job,
    chunks: Iterable[Layouts],
    min_headroom_bytes: float,
    keeps_limits: KeepsLimits,
) -> Iterator[int]:
    """The numbers of GPUs, ascending as the layouts are, on which some layout fits and keeps the limits.

    keeps_limits : of layouts and times of a step [s], both of shape (layout,)
    """
    for chunk in chunks:
        layouts = chunk[fitting(job, chunk, min_headroom_bytes)]
        if len(layouts):
            kept = keeps_limits(layouts, timeline(job, layouts).step_s)
            yield from np.unique(layouts.gpus[kept]).tolist()
