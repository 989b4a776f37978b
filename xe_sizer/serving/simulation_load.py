"""The test that a scenario asks for: what one of its replicas is offered, and what comes of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.serving.simulation import simulate
from xe_sizer.serving.simulation_offered import offered, poisson_arrivals

if TYPE_CHECKING:
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.serving.memory import ServingMemory
    from xe_sizer.serving.resolved import ResolvedService
    from xe_sizer.serving.simulation_offered import Offered, Outcome


def run_test(resolved: ResolvedService, placement: ReplicaLayouts, memory: ServingMemory, replicas: int) -> Outcome:
    """One replica's share of a test: every so manieth of its requests, at its share of the rate or the concurrency.

        requests, rate and concurrency of a replica = those of the test / replicas

    Parameters
    ----------
    resolved : what is asked, with the requests of the test
    placement, memory : of a replica, and its pool of shape (1,) [bytes]
    replicas : at work [-]

    Returns
    -------
    Outcome, shape (requests of a replica,), seconds [s]

    Source: own definition: a router that gives requests out in turn.
    """
    return simulate(resolved.job, placement, memory, resolved.traffic, _offered(resolved, replicas))


def _offered(resolved: ResolvedService, replicas: int) -> Offered:
    requests = math.ceil((resolved.requests or 1) / replicas)
    if resolved.load == "concurrency":
        return offered(resolved.traffic, requests, max(round(resolved.amount / replicas), 1))
    if resolved.load == "request_rate":
        arrivals_s = poisson_arrivals(resolved.amount / replicas, requests)
        return offered(resolved.traffic, requests, arrivals_s=arrivals_s)
    return offered(resolved.traffic, requests)
