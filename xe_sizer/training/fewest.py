"""The fewest GPUs that do, looked for when somebody asks."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.memory import fitting, spare_bytes
from xe_sizer.training.space import LARGEST_SEARCH, layout_chunks, without_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.resolved import ResolvedTraining
    from xe_sizer.training.space import Rules

# Combinations that a search over ascending numbers of GPUs looks at first, and how much further it goes each time:
# most jobs fit on few, and what is looked at in vain takes time.
FIRST_TO_FIT, GROWTH = 64, 4
SET_FOR_GPUS = ("dp", "zero_group", "grad_accum")


@frozen
class Fewest:
    """Fewest GPUs on which a job fits, among the numbers that a plan tries too."""

    resolved: ResolvedTraining

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that are tried."""
        return self.resolved.gpu_numbers(max(LARGEST_SEARCH, self.resolved.gpus or 0))

    @cached_property
    def that_fit(self) -> int | None:
        """Under any layout that the stack supports, with the headroom asked for: what `plan` calls the fewest.

        Replicas and accumulation that were chosen for the GPUs at hand say nothing about fewer: they are left open.
        """
        smallest = self._smallest(self._every_way, self.counts, self.resolved.min_headroom_bytes)
        return self.with_fitted_batch(self._every_way, smallest, Fewest.holds)

    def with_fitted_batch(self, rules: Rules, smallest: int | None, does: Callable[[Fewest, int], bool]) -> int | None:
        """The fewest GPUs that do, also among numbers that the assumed batch rules out and a fitted one does not.

        They lie below the fewest found and above what does not; what some GPUs cannot do, fewer cannot either.

        rules : by which the numbers were searched; does : whether so many GPUs do, with the batch fitted to them
        """
        if self.resolved.at_batch is None:
            return smallest
        ruled_out = without_groups(rules, self.counts)
        most = math.inf if smallest is None else smallest
        least = max((count for count in self.counts if count < most and count not in ruled_out), default=0)
        while between := [count for count in ruled_out if least < count < most]:
            count = between[len(between) // 2]
            if does(Fewest(self.resolved.fitted_to(count)), count):
                smallest = most = count
            else:
                least = count
        return smallest

    def holds(self, count: int) -> bool:
        """Whether so many GPUs hold the job under any layout that the stack supports."""
        return self._smallest(self._every_way, (count,), self.resolved.min_headroom_bytes) is not None

    @cached_property
    def offloads(self) -> bool:
        """Whether only layouts that offload fit on so few."""
        if self.that_fit is None or "offload" in self._every_way.fixed:
            return False
        fitted = Fewest(self.resolved.fitted_to(self.that_fit))
        rules = replace(fitted._every_way, fixed={**self._every_way.fixed, "offload": OFFLOAD.index("none")})
        return fitted._smallest(rules, (self.that_fit,), self.resolved.min_headroom_bytes) is None

    @property
    def _every_way(self) -> Rules:
        rules = self.resolved.rules
        open_ = SET_FOR_GPUS if rules.global_batch is not None else SET_FOR_GPUS[:-1]
        fixed = {name: value for name, value in rules.fixed.items() if name not in open_}
        return replace(rules, every_way=True, fixed=fixed)

    @cached_property
    def that_fit_unasked(self) -> int | None:
        """Under what the stack does unasked, with something to spare: what an estimate takes where nobody says."""
        smallest = self._smallest(self.resolved.rules, self.counts, self._spare_bytes)
        return self.with_fitted_batch(self.resolved.rules, smallest, Fewest._hold_unasked)

    def _hold_unasked(self, count: int) -> bool:
        return self._smallest(self.resolved.rules, (count,), self._spare_bytes) is not None

    @property
    def _spare_bytes(self) -> float:
        return spare_bytes(self.resolved.job, self.resolved.min_headroom_bytes)

    def _smallest(self, rules: Rules, counts: Collection[int], headroom_bytes: float) -> int | None:
        chunks = layout_chunks(rules, counts, FIRST_TO_FIT, least_memory=True, growth=GROWTH)
        return smallest_count(self.resolved.job, chunks, headroom_bytes)


def smallest_count(job: Job, chunks: Iterable[Layouts], min_headroom_bytes: float) -> int | None:
    """The fewest GPUs at which one of the layouts, ordered by their GPU count, fits with such a headroom."""
    for chunk in chunks:
        ok = fitting(job, chunk, min_headroom_bytes)
        if ok.size:
            return int(chunk.gpus[ok].min())
    return None
