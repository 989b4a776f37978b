"""Latencies of a service over its load, from next to nothing to as much as it takes: what a capacity planner plots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.result.serving import LatencyAt, LoadPoint
from xe_sizer.serving.load import LOADS

if TYPE_CHECKING:
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.queueing import Latencies


def load_curve(sized: ServingEstimate) -> Iterator[LoadPoint]:
    """The placement and the replicas of an estimate under other loads, ascending; none for a batch.

        load of the service = load of a replica x working replicas

    Source: own derivation: `Load.served` at loads that nobody asked for, as a picture needs them.
    """
    resolved, found = sized.resolved, sized.choice.curve
    if found is None or not sized.fits:
        return
    load, working = LOADS[resolved.load], sized.working_replicas
    each = load.along(resolved, found)
    rates, mean = load.served(resolved, found, each)
    rates = np.broadcast_to(rates, each.shape)
    judged = load.served(resolved, found, each, resolved.percentile)[1] if load.by_chance else None
    for place in range(len(each)):
        ttft_s, tpot_s, request_s = _at(mean, place)
        if math.isfinite(request_s) and rates[place, 0] > 0:
            at = LatencyAt(resolved.percentile, *_at(judged, place)) if judged else None
            yield LoadPoint(
                float(each[place, 0]) * working, float(rates[place, 0]) * working, ttft_s, tpot_s, request_s, at
            )


def _at(found: Latencies, place: int) -> tuple[float, float, float]:
    """Of the one placement, at a load."""
    ttft_s, tpot_s, request_s = np.broadcast_arrays(found.ttft_s, found.tpot_s, found.request_s)
    return float(ttft_s[place, 0]), float(tpot_s[place, 0]), float(request_s[place, 0])
