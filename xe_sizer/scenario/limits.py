"""The limits of a scenario: one table, by which every estimate of either wing is judged.

A limit is one line of `LimitsSection`: its key, its range, and the quantity of an estimate that it bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xe_sizer.immutable import Immutable
from xe_sizer.result.common import (
    BOUND,
    DEFAULT_CONFIDENCE,
    TIGHT,
    UNKNOWN,
    UNSURE,
    UNSURE_MEMORY,
    Limit,
    Reason,
    Verdict,
    certainty_of,
    memory_word,
)
from xe_sizer.scenario.schema import KEYS

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.scenario.caller import Caller
    from xe_sizer.scenario.schema import LimitsSection
    from xe_sizer.software.uncertainty import MemoryChance, Spread


class Estimate(Protocol):
    """What is asked of an answer of either wing before anything of it is shown.

    cost : of the run, or of an hour of the service; None where no price is known
    limits : those of the scenario against the estimate
    ok : fits, takes its load and keeps every limit
    shortfall : needed over allowed, of whatever lacks most [-]
    fit_probability : that the memory suffices, None where nobody knows how much there is [-]
    usable_gib : memory of a GPU
    roomy : likely to fit, as far as anybody knows how much memory there is
    spread : factors on a quantity by its name, or on the peak of memory for what is left of it; None for a bound
    """

    @property
    def fits(self) -> bool: ...
    @property
    def fit_probability(self) -> float | None: ...
    @property
    def roomy(self) -> bool: ...
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
    @property
    def usable_gib(self) -> float: ...
    def spread(self, of: str) -> Spread | None: ...


class LimitRule(Immutable, eq=True):
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

    def sides(self, value: Any, limit: float, usable: float) -> tuple[Any, float]:
        """What may rise and how far: the quantity itself, or what is taken of `usable` for what is left of it."""
        return (value, limit) if self.most else (usable - value, usable - limit)

    def needed(self, spread: Spread | None, confidence: float | None) -> float:
        """By what factor more than expected must be allowed for a confidence; None: the expected value decides.

        Memory is estimated with caution, which a low confidence does not take back.
        """
        if spread is None or confidence is None:
            return 1.0
        quantile = spread.quantile(confidence)
        return quantile if self.most else max(quantile, 1.0)


LIMITS = tuple(
    LimitRule(each.name.removeprefix("limits."), each.of, each.wing, each.option, each.most)
    for each in KEYS.values()
    if each.of and each.option
)
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
    return tuple(_limit(rule, limit, estimate, section.confidence) for rule, limit in _given(section, wing))


def _limit(rule: LimitRule, limit: float, estimate: Estimate, confidence: float | None) -> Limit:
    value, spread = getattr(estimate, rule.of), estimate.spread(rule.of)
    if value is None or not math.isfinite(value):
        never = value is not None
        word = certainty_of(0.0) if never else UNKNOWN
        return Limit(
            name=rule.name, limit=limit, value=None, ok=False, probability=0.0 if never else None, certainty=word
        )
    known, usable = float(value), estimate.usable_gib
    found, allowed = rule.sides(known, limit, usable)
    ok = bool(found * rule.needed(spread, confidence) <= allowed)
    if spread is None:
        return Limit(name=rule.name, limit=limit, value=known, ok=ok, certainty=BOUND)
    probability = chance(spread, allowed / found if found > 0 else math.inf)
    low, high = _range(rule, known, spread, usable)
    return Limit(
        name=rule.name, limit=limit, value=known, ok=ok, probability=probability,
        certainty=certainty_of(probability, known=allowed >= found * spread.sure_from), low=low, high=high,
    )  # fmt: skip


def chance(spread: Spread | MemoryChance, ratio: float) -> float:
    """The probability that a value over its estimate is at most `ratio`, to a digit that anybody could defend [-]."""
    return round(float(spread.probability(ratio)), 6)


def _range(rule: LimitRule, value: float, spread: Spread, usable: float) -> tuple[float | None, float | None]:
    """Between which the value lies with 80 %; nothing where it is exact."""
    if spread.low == spread.high:
        return None, None
    if rule.most:
        return value * spread.low, value * spread.high
    return usable - (usable - value) * spread.high, usable - (usable - value) * spread.low


def kept(
    section: LimitsSection, wing: str, known: Mapping[str, Array], size: int, spread: Callable[[str], Spread | None]
) -> NDArray[np.bool_]:
    """Whether each of many candidates keeps every upper limit on the quantities that are known of it, shape (size,).

    spread : as of an estimate. The limit from below, on memory, is part of what fits
    """
    every = np.ones(size, dtype=bool)
    for rule, limit in _given(section, wing):
        if rule.most and rule.of in known:
            every &= known[rule.of] * rule.needed(spread(rule.of), section.confidence) <= limit
    return every


def shares(section: LimitsSection, wing: str, estimate: Estimate) -> Iterator[float]:
    """Needed over allowed of those limits from above that are missed; infinite where the value is unknown [-]."""
    for rule, limit in _given(section, wing):
        if rule.most:
            value = getattr(estimate, rule.of)
            needed = math.inf if value is None else value * rule.needed(estimate.spread(rule.of), section.confidence)
            if needed > limit:
                yield needed / limit


_UNITS = {"hours": " h", "kw": " kW"}  # by the end of a limit's name


def missed(
    limits: Iterable[Limit], caller: Caller, what: str = "estimate", confidence: float | None = None
) -> Iterator[Reason]:
    """A reason for every limit that does not hold; what a price needs is said as its fix, in the caller's words."""
    price = caller.setting("cost.price_per_gpu_hour")
    for limit in limits:
        if limit.ok:
            continue
        unpriced = limit.value is None and _RULE_OF[limit.name].priced
        undrawn = limit.value is None and limit.name == "max_kw"
        unit = _UNITS.get(limit.name.rpartition("_")[2], "")
        value = f"{_figure(limit.value)}{unit}" if limit.value is not None else "unbounded"
        value = "unknown: no price given" if unpriced else value
        value = "unknown: nobody says what this accelerator draws" if undrawn else value
        yield Reason(
            code=limit.name,
            message=f"{limit.name} is {limit.limit:,.6g}{unit}, {what} {value}{_doubt(limit, confidence)}",
            fix=f"give a price with {price}" if unpriced else None,
        )


def _doubt(limit: Limit, confidence: float | None) -> str:
    """Why a limit is missed that the expected value keeps."""
    if confidence is None or limit.probability is None or limit.probability < DEFAULT_CONFIDENCE:
        return ""
    return f": met with a probability of {100 * limit.probability:.0f} %, {100 * confidence:.0f} % required"


def memory_doubt(estimate: Estimate, confidence: float | None) -> Iterator[Reason]:
    """A reason where memory fits, but not with the confidence that was asked for."""
    probability = estimate.fit_probability
    if not estimate.fits or confidence is None:
        return
    if probability is None and confidence > DEFAULT_CONFIDENCE:
        message = f"whether the host's memory suffices is not known, {100 * confidence:.0f} % required"
        yield Reason(code=UNSURE_MEMORY, message=message)
    elif probability is not None and probability < confidence:
        message = f"memory suffices with a probability of {100 * probability:.0f} %, {100 * confidence:.0f} % required"
        yield Reason(code=UNSURE_MEMORY, message=message)


def verdict_of(estimate: Estimate, confidence: float | None, meets_limits: bool, reasons: Iterable[Reason]) -> Verdict:
    """The verdict on an estimate, with how sure it is."""
    probability, memory = estimate.fit_probability, memory_word(estimate.fit_probability, estimate.fits)
    return Verdict(
        fits=estimate.fits,
        meets_limits=meets_limits,
        reasons=tuple(reasons),
        limits=estimate.limits,
        margin="over" if not estimate.fits else TIGHT if memory == TIGHT else "headroom",
        fit_probability=probability,
        fit_certainty=UNSURE if probability is None else certainty_of(probability),
        confidence=confidence or DEFAULT_CONFIDENCE,
        memory=memory,
    )


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
