"""Prices layouts with the equations of the estimate: memory first, time for what fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import fits, memory_ledger
from xe_sizer.training.step import timeline

CHUNK = 1 << 14  # layouts priced together: arrays stay in the cache and memory stays bounded
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


def choose(job: Job, layouts: Layouts, min_headroom_bytes: float) -> Choice:
    """The fastest layout that fits; when none does, the one that misses by the least."""
    best: tuple[float, float] | None = None
    chosen, smallest, feasible = layouts[:1], np.inf, 0
    for chunk in _chunks(layouts):
        ledger = memory_ledger(job, chunk)
        ok = fits(ledger, job, min_headroom_bytes)
        feasible += int(ok.sum())
        if ok.any():
            step_s, peak = timeline(job, chunk[ok]).step_s, ledger.peak_bytes[ok]
            near = np.flatnonzero(step_s <= step_s.min() * (1.0 + TIE))
            index = near[np.argmin(peak[near])]
            if best is None or step_s[index] < best[0]:
                best, chosen = (float(step_s[index]), float(peak[index])), chunk[ok][index : index + 1]
        elif best is None and ledger.peak_bytes.min() < smallest:
            index = int(np.argmin(ledger.peak_bytes))
            smallest, chosen = float(ledger.peak_bytes[index]), chunk[index : index + 1]
    return Choice(chosen, best is not None, len(layouts), feasible)


def any_fits(job: Job, layouts: Layouts, min_headroom_bytes: float) -> bool:
    """Whether some layout fits."""
    return any(
        bool(fits(memory_ledger(job, chunk), job, min_headroom_bytes).any()) for chunk in _chunks(layouts)
    )
