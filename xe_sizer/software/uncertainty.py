"""How far off a time may be: from the residuals of published runs that are like the job.

`residuals/` holds, for groups of published runs, how far measured times lie from predicted ones (written by
scripts/build_residuals.py). A job's range starts with that of all runs and moves towards those of the same kind of
job, of the same stack, and of both, the more sources they come from.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import msgspec

from xe_sizer.frozen import frozen
from xe_sizer.result.common import Range
from xe_sizer.software.certainty import Spread

TABLES = Path(__file__).parent / "residuals"
ANY = ""
# Sources that make a group's own range count half; one source says little about the next. Chosen, not fitted.
HALF_TRUST = 3.0
BORROWED = 1.15  # assumed: wider by this factor where the accelerator's laws are those of another one


@frozen(eq=True)
class Residuals:
    """A group's runs, their sources, and the low and high quantiles of log(measured / predicted)."""

    runs: int
    sources: int
    low: float
    high: float


Group = tuple[str, str, bool]  # stack, kind of job, whether lengths or batch had to be assumed
Table = dict[Group, Residuals]


@frozen(eq=True)
class Uncertainty:
    """Factors on an expected time, what they rest on, and whether that is measurements.

    bound : whether the time is one below which nothing comes, and no estimate
    """

    low: float
    high: float
    evidence: str
    calibrated: bool
    bound: bool = False

    @property
    def spread(self) -> Spread | None:
        """The distribution of the time; None for a bound, of which nobody can say how far it is kept."""
        return None if self.bound else Spread(self.low, self.high)

    @property
    def of_inverse(self) -> Spread | None:
        """The same of what grows as the quantity falls, such as the price of a token with the rate of tokens."""
        return None if self.bound else Spread(1.0 / self.high, 1.0 / self.low)

    def around(self, expected: float) -> Range:
        return Range(low=expected * self.low, expected=expected, high=expected * self.high)


SPEED_OF_LIGHT = Uncertainty(
    1.0, 1.0, "the speed of light, below which no software comes: a bound, not an estimate", False, bound=True
)


@cache
def published(path: Path) -> Table:
    """A table that ships."""
    rows = msgspec.json.decode(path.read_bytes())
    return {
        (row["stack"], row["kind"], row["assumed"]): Residuals(row["runs"], row["sources"], row["low"], row["high"])
        for row in rows
    }


@cache
def memory_spread(path: Path) -> Spread:
    """The distribution of peaks of memory over those that were predicted, as a table that ships holds it."""
    table = msgspec.json.decode(path.read_bytes())
    return Spread(low=table["low"], high=table["high"], middle=table["middle"])


def blended(table: Table, stack: str, kind: str, assumed: bool) -> tuple[float, float]:
    """low and high quantiles of log(measured / predicted) for a job, from the groups that it belongs to.

    q <- q + w (q_group - q) with w = s / (s + 3) for s sources, from the widest group to the nearest: a group's own
    spread counts the more, the more independent sources it has (partial pooling). Groups: all runs, those of the kind
    of job, and of these those of the stack, or all of the stack where it has none of the kind.
    """
    everything = table.get((ANY, ANY, assumed)) or table[ANY, ANY, False]
    low, high = everything.low, everything.high
    own = table.get((stack, kind, assumed)) or table.get((stack, ANY, assumed))
    for found in (table.get((ANY, kind, assumed)), own):
        if found is not None:
            weight = found.sources / (found.sources + HALF_TRUST)
            low, high = low + weight * (found.low - low), high + weight * (found.high - high)
    return min(low, 0.0), max(high, 0.0)


def from_residuals(
    table: Table, name: str, kind: str, assumed: bool, borrowed: bool, what: str = "stack"
) -> Uncertainty:
    """The range of a quantity of one kind under one stack (or `what` else); wider where the laws are borrowed."""
    low, high = blended(table, name, kind, assumed)
    widened = math.log(BORROWED) if borrowed else 0.0
    text, calibrated = _evidence(table, name, kind, what)
    return Uncertainty(math.exp(low - widened), math.exp(high + widened), text, calibrated)


def symmetric(error: float, evidence: str, calibrated: bool) -> Uncertainty:
    """Times are off by a factor rather than by a difference."""
    return Uncertainty(1.0 / (1.0 + error), 1.0 + error, evidence, calibrated)


def _evidence(table: Table, stack: str, kind: str, what: str) -> tuple[str, bool]:
    """What the range rests on in words, and whether the stack has been measured at all."""
    both, alone, everything = (
        table.get(group) for group in ((stack, kind, False), (stack, ANY, False), (ANY, ANY, False))
    )
    if both is not None:
        return f"{_count(both)} of {kind} with the {what} {stack}", True
    if alone is not None:
        return f"{_count(alone)} of other kinds with the {what} {stack}", True
    assert everything is not None
    return f"{_count(everything)} with other {what}s; none with {stack}", False


def _count(group: Residuals) -> str:
    sources = "1 source" if group.sources == 1 else f"{group.sources} sources"
    return f"{group.runs} published runs from {sources}"
