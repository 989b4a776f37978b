"""What differs between two runs of `check`, as between a branch and what it is to join: frozen, in SI units."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from xe_sizer.result.common import CERTAINTIES, Struct
from xe_sizer.result.serving import OVERLOADED, QUEUES, ServeResult
from xe_sizer.result.training import Result

if TYPE_CHECKING:
    from xe_sizer.result.check import Checked, CheckResult

Kind = Literal["worse", "better", "mixed", "same", "new", "removed"]
KINDS: tuple[Kind, ...] = ("worse", "better", "mixed", "new", "removed", "same")
"""In the order in which a reader wants to see them."""
PASSES, DOUBTFUL, MISSES = "passes", "passes, unsure", "misses limits"
TOO_MUCH, TOO_BIG, BAD = "overloaded", "does not fit", "bad input"
VERDICTS = (PASSES, DOUBTFUL, MISSES, TOO_MUCH, TOO_BIG, BAD)
"""From the best to the worst."""
_DOUBTS = tuple(word for word, least in CERTAINTIES.items() if least < CERTAINTIES["likely"])
TOLERANCE = 0.01  # share by which a figure may differ and count as the same [-]


class Figures(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run says of a scenario; None for what it has not got.

    certainty : the least of its memory and limits
    total_s : the whole job; tpot_s : a token of an answer; price : the whole job, or an hour of the service
    """

    verdict: str
    certainty: str | None = None
    gpus: int | None = None
    peak_bytes: float | None = None
    total_s: float | None = None
    tpot_s: float | None = None
    price: float | None = None
    currency: str | None = None


class Change(Struct, frozen=True, kw_only=True):
    """One scenario before and after; None where it was, or is, not among those that are checked."""

    file: str
    kind: Kind
    before: Figures | None = None
    after: Figures | None = None


def changes(before: CheckResult, after: CheckResult) -> tuple[Change, ...]:
    """Every scenario of either run, by the name of its file; those that are gone come last."""
    earlier = {_key(one): one for one in before.scenarios}
    now = {_key(one) for one in after.scenarios}
    found = [_change(one.file, earlier.get(_key(one)), one) for one in after.scenarios]
    gone = [_change(one.file, one, None) for key, one in earlier.items() if key not in now]
    return (*found, *gone)


def _key(one: Checked) -> str:
    return os.path.normpath(one.file)


def _change(file: str, before: Checked | None, after: Checked | None) -> Change:
    old, new = (None if one is None else figures(one) for one in (before, after))
    return Change(file=file, kind=_kind(old, new), before=old, after=new)


def figures(one: Checked) -> Figures:
    """What two runs are compared by."""
    result = one.result
    if result is None:
        return Figures(verdict=BAD)
    total_s = tpot_s = price = currency = None
    if isinstance(result, Result):
        total_s = result.time.total_s.expected if result.verdict.fits else None
        if result.cost.price and result.verdict.fits:
            price, currency = result.cost.price.expected, result.cost.price.currency
    elif isinstance(result, ServeResult):
        tpot_s, price, currency = result.latency.tpot_s.expected, result.cost.per_hour, result.cost.currency
    return Figures(
        verdict=_verdict(one),
        certainty=result.verdict.certainty,
        gpus=result.gpus.count,
        peak_bytes=result.memory.peak_bytes,
        total_s=total_s,
        tpot_s=tpot_s,
        price=price,
        currency=currency if price is not None else None,
    )


def _verdict(one: Checked) -> str:
    if one.result is None:
        return BAD
    if not one.result.verdict.fits:
        return TOO_BIG
    if any(reason.code in (OVERLOADED, QUEUES) for reason in one.result.verdict.reasons):
        return TOO_MUCH
    if not one.ok:
        return MISSES
    return DOUBTFUL if one.result.verdict.certainty in _DOUBTS else PASSES


def _kind(before: Figures | None, after: Figures | None) -> Kind:
    """The verdict decides; where it is the same, what the scenario takes: GPUs, time and money."""
    if before is None or after is None:
        return "new" if before is None else "removed"
    signs = set(_signs(before, after))
    if not signs:
        return "same"
    if len(signs) == 2:
        return "mixed"
    return "worse" if signs == {1} else "better"


def _signs(before: Figures, after: Figures) -> Iterator[int]:
    """1 for each figure that grew, -1 for each that fell."""
    if before.verdict != after.verdict:
        yield 1 if VERDICTS.index(after.verdict) > VERDICTS.index(before.verdict) else -1
        return
    pairs = [(before.gpus, after.gpus), (before.total_s, after.total_s), (before.tpot_s, after.tpot_s)]
    if before.currency == after.currency:
        pairs.append((before.price, after.price))
    for old, new in pairs:
        if old is not None and new is not None and abs(new - old) > TOLERANCE * max(abs(old), abs(new)):
            yield 1 if new > old else -1
