"""A day whose load changes from hour to hour, on replicas that are started and stopped with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.result.serving import Day, DayHour
from xe_sizer.serving.memory import weights
from xe_sizer.units import GIGA, HOUR_S

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate

# What a server reads of a model as it starts: assumed, as much as the usual network storage gives.
READ_BYTES_PER_S = 2 * GIGA
# From the start of an engine to its first answer, beside reading the weights: measured once, 59 s with graphs compiled
# before (https://github.com/vllm-project/vllm/issues/20264); minutes more where they are compiled first.
ENGINE_START_S = 60.0
# Of the peak, what an hour without load is sized for: assumed, so that one replica stays for whoever comes.
LEAST_SHARE = 1e-3


def start_s(sized: ServingEstimate) -> float:
    """Time from starting a replica to its first answer.

        start = weights of a server / read rate + start of the engine

    Parameters
    ----------
    sized : the service with the placement of its replicas

    Returns
    -------
    float, shape (), seconds [s]

    Source: own derivation; the user's `replica_start_s` where there is one.
    """
    given = sized.resolved.given.values.serve.replica_start_s
    if given is not None:
        return float(given)
    of_gpu = float(sized.memory.fixed[weights.name][0])
    read_bytes = of_gpu * min(int(sized.placement.gpus[0]), sized.resolved.job.server.accelerators)
    return read_bytes / READ_BYTES_PER_S + ENGINE_START_S


def day(sized: ServingEstimate) -> Day | None:
    """The hours of a day with the replicas that each needs, beside as many as the peak needs all day.

        load(h) = load x value(h) / max of the values
        GPU hours = sum of GPUs(h) + (GPUs started) x start / 3600

    Every hour is sized as a question of its own, with the placement of the peak. What an hour has more than the one
    before is started so early that it serves from the hour's beginning; the day repeats.

    Parameters
    ----------
    sized : the service at its peak

    Returns
    -------
    Day, shape (24 hours,), seconds [s] and hours [h]; None where nobody gives the hours' load, or where no replica fits

    Source: own derivation.
    """
    values = sized.resolved.given.values.serve.hourly_load
    if values is None or not sized.fits:
        return None
    known: dict[float, ServingEstimate] = {}
    at = [_at(sized, max(value / max(values), LEAST_SHARE), known) for value in values]
    hours = tuple(_hour(place, values[place] / max(values), one) for place, one in enumerate(at))
    before = (at[-1], *at[:-1])
    started = [max(now.gpus - then.gpus, 0) for now, then in zip(at, before, strict=True)]
    starts_h = sum(started) * start_s(sized) / HOUR_S
    costs = [one.cost for one in at]
    cost = None
    if sized.cost is not None and sized.billed_gpus:
        extra = starts_h * sized.cost / sized.billed_gpus
        cost = sum(each for each in costs if each is not None) + extra
    return Day(
        hours=hours,
        requests=sum(hour.requests_per_s for hour in hours) * HOUR_S,
        gpu_hours=sum(one.gpus for one in at) + starts_h,
        peak_gpu_hours=float(len(hours) * sized.gpus),
        cost=cost,
        peak_cost=None if sized.cost is None else len(hours) * sized.cost,
        currency=sized.resolved.tariff.currency,
        replica_start_s=start_s(sized),
        meets_limits=all(hour.meets_limits for hour in hours),
    )


def _at(sized: ServingEstimate, share: float, known: dict[float, ServingEstimate]) -> ServingEstimate:
    """The service at a share of its load, on as few replicas as keep it, and on no more than at the peak."""
    if share not in known:
        resolved, placement = sized.resolved, sized.placement
        fixed = {name: int(getattr(placement, name)[0]) for name in ("tp", "pp", "ep", "dp")}
        amount = resolved.amount * share
        if resolved.load == "concurrency":
            amount = max(math.floor(amount), 1.0)
        fewer = sized.resized(amount=amount, gpus=None, fixed=fixed)
        if fewer is None or fewer.gpus > sized.gpus:
            fewer = sized.resized(amount=amount, gpus=sized.gpus, fixed=fixed) or sized
        known[share] = fewer
    return known[share]


def _hour(place: int, share: float, one: ServingEstimate) -> DayHour:
    ttft_s, tpot_s, _ = one.judged_s
    return DayHour(
        hour=place,
        share=share,
        load=one.resolved.amount if share >= LEAST_SHARE else 0.0,
        requests_per_s=one.taken_per_s if share >= LEAST_SHARE else 0.0,
        replicas=one.replicas,
        gpus=one.gpus,
        ttft_s=ttft_s if math.isfinite(ttft_s) else None,
        tpot_s=tpot_s if math.isfinite(tpot_s) else None,
        meets_limits=one.keeps_limits,
    )
