"""Prices layouts with the equations of the estimate: memory first, time for what fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xe_sizer.graph.operators import Array
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger
from xe_sizer.training.step import timeline

CHUNK = 1 << 14  # layouts priced together: arrays stay in the cache and memory stays bounded
# Where the layout is open, the search leaves this share of the card free: a layout that fits by a hair is no plan.
SPARE_SHARE = 0.05
TIE = 1e-3  # step times this near count as equal; the layout with more headroom wins


@dataclass(frozen=True)
class Choice:
    """The best of many layouts, and how many there were."""

    layouts: Layouts
    fits: bool
    considered: int
    feasible: int


def _chunks(layouts: Layouts) -> list[Layouts]:
    return [layouts[start : start + CHUNK] for start in range(0, len(layouts), CHUNK)]


def spare_bytes(job: Job, min_headroom_bytes: float) -> float:
    """Headroom that the search asks of a layout: what the user asks, at least SPARE_SHARE of the card [bytes]."""
    return max(min_headroom_bytes, SPARE_SHARE * job.server.accelerator.memory_bytes)


def choose(job: Job, layouts: Layouts, min_headroom_bytes: float) -> Choice:
    """The fastest layout that fits with something to spare; else one that fits; else the one that misses by least."""
    spare = spare_bytes(job, min_headroom_bytes)
    best = _Best(layouts[:1])
    for chunk in _chunks(layouts):
        ledger = memory_ledger(job, chunk)
        fitting = fits(ledger, job, min_headroom_bytes)
        best.feasible += int(fitting.sum())
        for rank, ok in enumerate((fits(ledger, job, spare), fitting)):
            if ok.any() and rank <= best.rank:
                best.offer(rank, timeline(job, chunk[ok]).step_s, ledger.peak_bytes[ok], chunk[ok])
                break
        else:
            if best.rank == _Best.NONE_FITS:
                best.offer(_Best.NONE_FITS, ledger.peak_bytes, ledger.peak_bytes, chunk)
    return Choice(best.layouts, best.rank < _Best.NONE_FITS, len(layouts), best.feasible)


class _Best:
    """The best layout so far: lowest rank (0 fits with room, 1 fits, 2 does not), then lowest value."""

    NONE_FITS = 2

    def __init__(self, layouts: Layouts) -> None:
        self.layouts, self.rank, self.value, self.feasible = layouts, self.NONE_FITS, np.inf, 0

    def offer(self, rank: int, values: Array, peaks: Array, layouts: Layouts) -> None:
        """Take the layout of the lowest value; among equals (TIE) the one with the lowest peak."""
        near = np.flatnonzero(values <= values.min() * (1.0 + TIE))
        index = near[np.argmin(peaks[near])]
        if rank < self.rank or values[index] < self.value:
            self.layouts, self.rank, self.value = layouts[index : index + 1], rank, float(values[index])


def any_fits(job: Job, layouts: Layouts, min_headroom_bytes: float) -> bool:
    """Whether some layout fits with something to spare."""
    min_headroom_bytes = spare_bytes(job, min_headroom_bytes)
    return any(
        bool(fits(memory_ledger(job, chunk), job, min_headroom_bytes).any()) for chunk in _chunks(layouts)
    )
