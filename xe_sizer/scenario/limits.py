"""The limits of a scenario: one table, by which every estimate of either wing is judged.

A limit is one line of `LimitsSection`: its key, its range, and the quantity of an estimate that it bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.result.common import Limit, Reason
from xe_sizer.scenario.schema import LimitsSection

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.scenario.caller import Caller


class Estimate(Protocol):
    """What is asked of an answer of either wing before anything of it is shown.

    cost : of the run, or of an hour of the service; None where no price is known
    limits : those of the scenario against the estimate
    ok : fits, takes its load and keeps every limit
    shortfall : needed over allowed, of whatever lacks most [-]
    """

    @property
    def fits(self) -> bool: ...
    @property
    def margin(self) -> str: ...
    @property
    def gpus(self) -> int: ...
    @property
    def cost(self) -> float | None: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...
    @property
    def ok(self) -> bool: ...
    @property
    def shortfall(self) -> float: ...


@frozen(eq=True)
class LimitRule:
    """One row of the table, as `schema.judged` describes it."""

    name: str
    of: str
    wing: str | None
    option: str
    most: bool

    @property
    def key(self) -> str:
        """The dotted key of the scenario."""
        return f"limits.{self.name}"

    @property
    def priced(self) -> bool:
        """Whether the quantity is known only where a price is."""
        return self.of.startswith("cost")

    def keeps(self, value: Any, limit: float) -> Any:
        """Whether a value, or each of an array of them, is on the right side of the limit."""
        return value <= limit if self.most else value >= limit


def _rules() -> Iterator[LimitRule]:
    for name, annotated in LimitsSection.__annotations__.items():
        (row,) = (meta.extra for meta in annotated.__metadata__ if isinstance(meta, Meta) and meta.extra)
        option = row["option"] or name.replace("_", "-")
        yield LimitRule(name, row["of"], row["wing"], option, row["most"])


LIMITS = tuple(_rules())
_RULE_OF = {rule.name: rule for rule in LIMITS}


def _given(section: LimitsSection, wing: str) -> Iterator[tuple[LimitRule, float]]:
    """The limits that were given, of those that a wing judges."""
    for rule in LIMITS:
        limit = getattr(section, rule.name)
        if limit is not None and rule.wing in (None, wing):
            yield rule, float(limit)


def judge(section: LimitsSection, wing: str, estimate: Estimate) -> tuple[Limit, ...]:
    """The limits that were given against an estimate, which has the quantity of each as an attribute.

    A value is None where nobody knows it or nothing bounds it: such a limit does not hold.
    """
    return tuple(_limit(rule, limit, getattr(estimate, rule.of)) for rule, limit in _given(section, wing))


def _limit(rule: LimitRule, limit: float, value: float | None) -> Limit:
    known = None if value is None or not math.isfinite(value) else float(value)
    return Limit(name=rule.name, limit=limit, value=known, ok=known is not None and bool(rule.keeps(known, limit)))


def kept(section: LimitsSection, wing: str, known: Mapping[str, Array], size: int) -> NDArray[np.bool_]:
    """Whether each of many candidates keeps every limit on the quantities that are known of it, shape (size,)."""
    every = np.ones(size, dtype=bool)
    for rule, limit in _given(section, wing):
        if rule.of in known:
            every &= rule.keeps(known[rule.of], limit)
    return every


def shares(limits: Iterable[Limit]) -> Iterator[float]:
    """Value over limit of those limits from above that are missed; infinite where the value is unknown [-]."""
    for limit in limits:
        if not limit.ok and _RULE_OF[limit.name].most:
            yield math.inf if limit.value is None else limit.value / limit.limit


def missed(limits: Iterable[Limit], caller: Caller, what: str = "estimate") -> Iterator[Reason]:
    """A reason for every limit that does not hold; what a price needs is said as its fix, in the caller's words."""
    price = caller.setting("cost.price_per_gpu_hour")
    for limit in limits:
        if limit.ok:
            continue
        unpriced = limit.value is None and _RULE_OF[limit.name].priced
        value = _figure(limit.value) if limit.value is not None else "unbounded"
        value = "unknown: no price given" if unpriced else value
        yield Reason(
            code=limit.name,
            message=f"{limit.name} is {limit.limit:,.6g}, {what} {value}",
            fix=f"give a price with {price}" if unpriced else None,
        )


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
