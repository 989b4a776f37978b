"""The best layouts on every number of GPUs, out of all of them, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, ledger_of_possible, spare_bytes
from xe_sizer.training.step import timeline
from xe_sizer.training.ties import LAYOUT_ERROR, TIE, drawbacks, preferred
from xe_sizer.training.uncertainty import memory_doubtful

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.training.job import Job
    from xe_sizer.training.step import KeepsLimits

Progress = Callable[[int], None]


@frozen
class Frontier:
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


@frozen
class _Kept:
    """Layouts that may still be the answer for their number of GPUs; `tight` have not the headroom asked for.

    pace_s : as by `Job.pace_s`; doubtful : where memory is not likely to suffice
    """

    layouts: Layouts
    pace_s: Array
    peak_bytes: Array
    tight: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]

    def __getitem__(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> _Kept:
        return _Kept(
            self.layouts[index], self.pace_s[index], self.peak_bytes[index], self.tight[index], self.doubtful[index]
        )

    def __add__(self, other: _Kept) -> _Kept:
        return _Kept(
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
) -> Frontier:
    """Evaluate every layout and keep, for each number of GPUs on which some layout fits, the best.

    Layouts with something to spare go before those that fit by a hair, those in time before those that are late; of
    what is left `ties.preferred` takes one. An interrupt ends the search with what has been found. Memory is computed
    first and time for what fits; nothing that fits is left out.

    progress : called with the number of layouts considered after each chunk
    keeps_limits : whether layouts with a step time [s] each keep the limits on time and price, shape (layout,)
    """
    kept: _Kept | None = None
    considered = feasible = 0
    complete = True
    try:
        for chunk in chunks:
            found, fitting = _fitting(job, chunk, min_headroom_bytes)
            if found is not None:
                kept = _best(found if kept is None else kept + found)
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


def _step_s(job: Job, kept: _Kept) -> Array:
    """Time of a step under each layout [s]."""
    return np.asarray(kept.pace_s * (kept.layouts.samples / job.global_batch))


def _fitting(job: Job, chunk: Layouts, min_headroom_bytes: float) -> tuple[_Kept | None, int]:
    found = ledger_of_possible(job, chunk, min_headroom_bytes)
    if found is None:
        return None, 0
    possible, ledger = found
    ok = np.flatnonzero(fits(ledger, job, min_headroom_bytes))
    if not ok.size:
        return None, 0
    roomy = fits(ledger, job, spare_bytes(job, min_headroom_bytes))[ok]
    layouts = chunk[possible[ok]]
    peaks = ledger.peak_bytes[ok]
    kept = _Kept(
        layouts, job.pace_s(layouts, timeline(job, layouts).step_s), peaks, ~roomy, memory_doubtful(job, peaks)
    )
    return _best(kept), int(ok.size)


def _best(found: _Kept) -> _Kept:
    """What may be the answer for its number of GPUs: no slower than the model's error beyond the fastest there.

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


def _chosen(kept: _Kept, late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One layout for each number of GPUs: roomy before tight, in time before late, then as `preferred`."""
    worse = kept.tight * 2 + late
    found = []
    for gpus in np.unique(kept.layouts.gpus):
        here = np.flatnonzero(kept.layouts.gpus == gpus)
        here = here[worse[here] == worse[here].min()]
        one = kept[here]
        found.append(here[preferred(one.layouts, one.pace_s, one.peak_bytes, one.doubtful)])
    return np.array(found)
