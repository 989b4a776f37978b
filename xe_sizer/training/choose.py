"""Evaluates layouts with the equations of the estimate: memory first, time for what fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Array
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import Ledger, fits, fitting, memory_ledger, spare_bytes
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step import TIE, KeepsLimits, Timeline, timeline

CHUNK = 1 << 14  # layouts evaluated together: arrays stay in the cache and memory stays bounded
FITS_WITH_ROOM, FITS, DOES_NOT_FIT = range(3)


@frozen
class Choice:
    """The best of many layouts with its memory; `fits` with the headroom asked for. Time is computed when asked for."""

    job: Job
    layouts: Layouts
    ledger: Ledger
    fits: bool
    considered: int
    feasible: int
    known_timeline: Timeline | None = None

    @cached_property
    def timeline(self) -> Timeline:
        return self.known_timeline or timeline(self.job, self.layouts)

    @property
    def sequences(self) -> Sequences:
        """What padding makes of the data under the layout."""
        return self.timeline.sequences


@frozen
class _Candidate:
    """The best layout of one chunk: lowest rank, then lowest value (seconds, or bytes where nothing fits)."""

    rank: int
    value: float
    layouts: Layouts
    ledger: Ledger
    timeline: Timeline | None


def _chunks(layouts: Layouts) -> Iterator[Layouts]:
    for start in range(0, len(layouts), CHUNK):
        yield layouts[start : start + CHUNK]


def _best_index(values: Array, peaks: Array) -> int:
    """The lowest value; among equals (TIE) the one with the lowest peak."""
    near = np.flatnonzero(values <= values.min() * (1.0 + TIE))
    return int(near[np.argmin(peaks[near])])


def _best_of(
    job: Job, chunk: Layouts, ledger: Ledger, min_headroom_bytes: float, rank_to_beat: int
) -> _Candidate | None:
    """The best layout of a chunk, or None when it cannot beat the rank found so far."""
    peaks = ledger.peak_bytes
    for rank, headroom in ((FITS_WITH_ROOM, spare_bytes(job, min_headroom_bytes)), (FITS, min_headroom_bytes)):
        ok = np.flatnonzero(fits(ledger, job, headroom))
        if rank <= rank_to_beat and ok.size:
            times = timeline(job, chunk[ok])
            index = _best_index(times.step_s, peaks[ok])
            where = ok[index : index + 1]
            return _Candidate(rank, float(times.step_s[index]), chunk[where], ledger.at(int(where[0])), times.at(index))
    if rank_to_beat < DOES_NOT_FIT:
        return None
    index = int(np.argmin(peaks))
    return _Candidate(DOES_NOT_FIT, float(peaks[index]), chunk[index : index + 1], ledger.at(index), None)


def choose(job: Job, layouts: Layouts, min_headroom_bytes: float) -> Choice:
    """The fastest layout that fits with something to spare; else one that fits; else the one that misses by least.

    `layouts` must not be empty.
    """
    best: _Candidate | None = None
    feasible = 0
    for chunk in _chunks(layouts):
        ledger = memory_ledger(job, chunk)
        feasible += int(fits(ledger, job, min_headroom_bytes).sum())
        candidate = _best_of(job, chunk, ledger, min_headroom_bytes, best.rank if best else DOES_NOT_FIT)
        if candidate and (best is None or (candidate.rank, candidate.value) < (best.rank, best.value)):
            best = candidate
    assert best is not None
    fits_ = best.rank < DOES_NOT_FIT
    return Choice(job, best.layouts, best.ledger, fits_, len(layouts), feasible, best.timeline)


def smallest_count(job: Job, chunks: Iterable[Layouts], min_headroom_bytes: float) -> int | None:
    """The fewest GPUs at which one of the layouts, ordered by their GPU count, fits with something to spare."""
    for chunk in chunks:
        ok = fitting(job, chunk, spare_bytes(job, min_headroom_bytes))
        if ok.size:
            return int(chunk.gpus[ok].min())
    return None


def counts_that_keep(
    job: Job,
    chunks: Iterable[Layouts],
    min_headroom_bytes: float,
    keeps_limits: KeepsLimits,
) -> Iterator[int]:
    """The numbers of GPUs, ascending as the layouts are, on which some layout fits and keeps the limits.

    keeps_limits : of numbers of GPUs and times of a step [s], both of shape (layout,)
    """
    for chunk in chunks:
        layouts = chunk[fitting(job, chunk, min_headroom_bytes)]
        if len(layouts):
            kept = keeps_limits(layouts.gpus, timeline(job, layouts).step_s)
            yield from np.unique(layouts.gpus[kept]).tolist()
