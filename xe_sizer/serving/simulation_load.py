"""The test that a scenario asks for: what one of its replicas is offered, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.serving.cases import PERCENTILES
from xe_sizer.serving.simulation import simulate
from xe_sizer.serving.simulation_offered import Offered, offered, poisson_arrivals

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.cases import Choice, Point
    from xe_sizer.serving.job import Images
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation_offered import Outcome
    from xe_sizer.serving.trace import Trace


def run_test(resolved: ResolvedService, placement: ReplicaLayouts, memory: ServingMemory, replicas: int) -> Outcome:
    """One replica's share of a test: every so manieth of its requests, or its share of the clients.

        requests, clients of a replica = those of the test / replicas

    Parameters
    ----------
    resolved : what is asked, with the requests of the test
    placement, memory : of a replica, and its pool of shape (1,) [bytes]
    replicas : at work [-]

    Returns
    -------
    Outcome, shape (requests of a replica,), seconds [s]

    Source: own definition: a router that gives requests out in turn (round robin).
    """
    return simulate(resolved.job, placement, memory, resolved.traffic, _offered(resolved, replicas))


def _offered(resolved: ResolvedService, replicas: int) -> Offered:
    total = resolved.requests or 1
    requests = math.ceil(total / replicas)
    if resolved.trace:
        return _replayed(resolved.trace, resolved.job.images, replicas)
    if resolved.load == "concurrency":
        return offered(resolved.traffic, requests, max(round(resolved.amount / replicas), 1))
    if resolved.load == "request_rate":
        arrivals_s = ARRIVALS[resolved.arrivals](resolved.amount, total)[::replicas]
        return offered(resolved.traffic, requests, arrivals_s=arrivals_s)
    return offered(resolved.traffic, requests)


def _replayed(trace: Trace, images: Images | None, replicas: int) -> Offered:
    """The requests of a trace that one replica gets, each with the images of all."""
    seen = images.each * images.seen.tokens if images else 0
    return Offered(trace.inputs[::replicas] + seen, trace.outputs[::replicas], trace.arrivals_s[::replicas])


def constant_arrivals(rate: float, requests: int) -> Array:
    """Times of requests that come one after the other.

        t_i = i / rate

    Parameters
    ----------
    rate : requests per second [1/s]
    requests : how many [-]

    Returns
    -------
    ndarray of float, shape (requests,), the first at zero [s]

    Source: benchmark tools that are given a rate without its chance (burstiness infinite, constant request rate).
    """
    return np.arange(requests) / rate


ARRIVALS: Mapping[str, Callable[[float, int], Array]] = {"poisson": poisson_arrivals, "constant": constant_arrivals}


def tested(resolved: ResolvedService, choice: Choice) -> Choice:
    """The choice with what the requests of a test see of one of its working replicas."""
    working = choice.replicas - resolved.spare_replicas
    test = run_test(resolved, choice.placement, choice.memory, working)
    return replace(choice, point=_tested(resolved, choice.point, test, working), test=test)


def _tested(resolved: ResolvedService, point: Point, test: Outcome, replicas: int) -> Point:
    """One of the replicas over a test: its share of the whole test's rate, and latencies of its requests."""
    wanted = sorted({*PERCENTILES, resolved.percentile})
    columns = (np.percentile(one, wanted).tolist() for one in (test.ttft_s, test.tpot_s, test.request_s))
    return replace(
        point,
        running=float((test.finish_s - test.start_s).sum()) / test.duration_s,
        requests_per_s=(resolved.requests or 1) / replicas / test.duration_s,
        ttft_s=float(test.ttft_s.mean()),
        tpot_s=float(test.tpot_s.mean()),
        request_s=float(test.request_s.mean()),
        percentiles=dict(zip(wanted, zip(*columns, strict=True), strict=True)),
    )
