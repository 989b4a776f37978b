"""The limits of a scenario against what an answer comes to, and the reasons that missed ones give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from xe_sizer.result.common import Limit, Reason

PRICED = ("max_cost", "max_cost_per_million_tokens")
Asked = tuple[str, float | None, float | None, int]


def limits_of(asked: Iterable[Asked]) -> tuple[Limit, ...]:
    """The limits that were given.

    asked : name, limit (None where it was not given), value (None where there is nothing to compare, infinite where
    nothing bounds it), and 1 where the limit is a most, -1 where it is a least
    """
    return tuple(_limit(name, limit, value, sign) for name, limit, value, sign in asked if limit is not None)


def _limit(name: str, limit: float, value: float | None, sign: int) -> Limit:
    known = None if value is None or not math.isfinite(value) else value
    return Limit(name=name, limit=float(limit), value=known, ok=known is not None and sign * known <= sign * limit)


def missed(limits: Iterable[Limit]) -> Iterator[Reason]:
    """A reason for every limit that does not hold; what a price needs is said as its fix."""
    for limit in limits:
        if limit.ok:
            continue
        unpriced = limit.value is None and limit.name in PRICED
        value = _figure(limit.value) if limit.value is not None else "unbounded"
        value = "unknown: no price given" if unpriced else value
        yield Reason(
            code=limit.name,
            message=f"{limit.name} is {limit.limit:,.6g}, estimate {value}",
            fix="give a price with --price-per-gpu-hour" if unpriced else None,
        )


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
