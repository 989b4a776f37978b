"""Changes tried: each is estimated again, once, and kept only where it mends the job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xe_sizer.errors import InputError
from xe_sizer.profiles.registry import Registry
from xe_sizer.scenario.change import Change, changed, together
from xe_sizer.training.resolve import resolve
from xe_sizer.training.sizing import TrainingEstimate, meets_limits, size
from xe_sizer.units import HOUR_S

ROOM = 0.02  # no change is suggested that leaves less than this share of the card free
MOST_TRIALS = 60  # estimates spent on one piece of advice: a bound on the time to answer


@dataclass(frozen=True, eq=False)
class Option:
    """A change that mends the job, with what it comes to."""

    change: Change
    after: TrainingEstimate


@dataclass(eq=False)
class Trials:
    """Estimates of changes to one question; the same values are priced once."""

    before: TrainingEstimate
    registry: Registry
    sized: dict[str, TrainingEstimate | None] = field(default_factory=dict)

    def estimate(self, change: Change) -> TrainingEstimate | None:
        """The changed question priced; None where the change is not legal, or enough has been tried."""
        key = repr(sorted(change.values.items()))
        if key not in self.sized:
            if len(self.sized) >= MOST_TRIALS:
                return None
            self.sized[key] = self._sized_with(change)
        return self.sized[key]

    def _sized_with(self, change: Change) -> TrainingEstimate | None:
        try:
            resolved = resolve(changed(self.before.resolved.given, change.values), self.registry)
            return size(resolved, look_for_minimum=False)
        except InputError:
            return None

    def mends(self, after: TrainingEstimate) -> bool:
        """Whether the answer is yes with a little room; a host of unknown memory is taken to have that of ours."""
        asked_bytes = self.before.resolved.job.server.host_memory_bytes
        host_bytes = after.resolved.job.server.host_memory_bytes or asked_bytes
        if host_bytes is not None and float(after.ledger.host_bytes[0]) > host_bytes:
            return False
        return meets_limits(after) and after.peak_bytes <= after.usable_bytes * (1.0 - ROOM)

    def first(self, changes: Iterable[Change], only_with_headroom: bool = False) -> list[Option]:
        """The mildest of one lever's changes that mends with headroom, else (where allowed) the mildest that mends."""
        tight: list[Option] = []
        for change in changes:
            after = self.estimate(change)
            if after is not None and self.mends(after):
                if after.margin == "headroom":
                    return [Option(change, after)]
                tight.append(Option(change, after))
        return [] if only_with_headroom else tight[:1]

    def combination(self, changes: Iterable[Change]) -> list[Option]:
        """The changes taken one after the other, those that help, until they mend; then without those not needed."""
        taken: list[Change] = []
        shortfall = _shortfall(self.before)
        for change in changes:
            if any(change.contradicts(other) for other in taken):
                continue
            after = self.estimate(together([*taken, change]))
            if after is None or _shortfall(after) >= shortfall:
                continue
            taken, shortfall = [*taken, change], _shortfall(after)
            if self.mends(after):
                return self._needed(taken)
        return []

    def _needed(self, taken: list[Change]) -> list[Option]:
        """The heaviest changes are dropped first, where the others mend without them."""
        for change in reversed(taken):
            rest = [other for other in taken if other is not change]
            after = self.estimate(together(rest)) if rest else None
            if after is not None and self.mends(after):
                taken = rest
        whole = together(taken)
        after = self.estimate(whole)
        return [Option(whole, after)] if after is not None else []


def _shortfall(sized: TrainingEstimate) -> float:
    """Needed over allowed, of whatever lacks most: memory of the card or the host, hours or price [-]."""
    limits, cost = sized.resolved.given.values.limits, sized.cost
    host, hours = sized.resolved.job.server.host_memory_bytes, sized.total_s / HOUR_S
    shares = [(sized.peak_bytes + sized.resolved.min_headroom_bytes) / sized.usable_bytes]
    if host:
        shares.append(float(sized.ledger.host_bytes[0]) / host)
    if limits.max_hours:
        shares.append(hours / limits.max_hours)
    if limits.max_cost and cost is not None:
        shares.append(cost / limits.max_cost)
    return max(shares)
