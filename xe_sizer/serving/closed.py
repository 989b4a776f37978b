"""Replicas whose load comes from a fixed number of clients: requests always in flight, or users who think in between.

A closed system slows its own arrivals down: however full it is, its latencies have an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.serving.queueing import TO_THE_END, Latencies, evenly, highest, latencies, rate_within
from xe_sizer.serving.traffic import HIGHEST_LOAD

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.queueing import Curve
    from xe_sizer.serving.traffic import Traffic


def in_flight(found: Curve, traffic: Traffic, requests: ArrayLike) -> tuple[Array, Latencies]:
    """Rate and mean latencies of a replica that always has so many requests in flight.

        running = min(max(requests, 1), c)
        ttft = rest of a step + wait for room and for prompts + prefill + (max(requests, 1) - running) / rate
        request = ttft + (outputs - 1) tpot
        rate = max(requests, 1) / request

    A request comes as another one ends, which is at the end of a step: the next step has begun before the request is
    taken in. It finds the prompts of the other requests before it. Those beyond the c places wait for a place. Below
    one request the replica is idle between two of them.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers
    requests : in flight of one replica, shape (..., placements) [-]

    Returns
    -------
    (ndarray, Latencies), shape of the requests: requests per second [1/s], seconds [s]

    Source: Little's law (J. D. C. Little, Operations Research 9, 1961); M/G/1 (Pollaczek-Khinchine) for prompts.
    """
    requests = np.broadcast_to(as_array(requests), np.broadcast_shapes(np.shape(requests), found.most.shape))
    inside = np.maximum(requests, 1.0)
    running = np.minimum(inside, np.maximum(found.most, 1.0))
    states = found.states
    wanted = (states.step_s, states.tpot_s, states.prefill_s, states.prompt_s, states.room_s)
    step_s, tpot_s, prefill_s, prompt_s, room_s = found.at_running(running, *wanted)
    others = running - 1.0
    begun_s = others / running * step_s + prefill_s
    answer_s = max(traffic.outputs - 1.0, 0.0) * tpot_s
    first_s = begun_s + room_s + _line_s(others, prompt_s, begun_s + answer_s, traffic)
    answered_s = first_s + answer_s
    wait_s = (inside - running) * answered_s / running
    return requests / (answered_s + wait_s), Latencies(first_s + wait_s, tpot_s, answered_s + wait_s)


def _line_s(others: Array, prompt_s: Array, rest_s: Array, traffic: Traffic) -> Array:
    """Wait for the prompts of the others, who are in line only as they are not decoding [s].

        w = x p w + x p^2 (1 + v^2) / 2,  x = others / (rest + w)
        w^2 + (rest - others p) w = others p^2 (1 + v^2) / 2

    others : requests beside the one that waits [-]; prompt_s : p, what a prompt keeps others from [s]
    rest_s : of a request without the wait [s]; v is the spread of prompts

    Source: M/G/1 (Pollaczek-Khinchine) at the rate of a closed loop, as its others see it (mean value analysis).
    """
    free_s = rest_s - others * prompt_s
    residual = others * prompt_s**2 * (1.0 + traffic.input_spread**2) / 2.0
    return np.asarray((np.sqrt(free_s**2 + 4.0 * residual) - free_s) / 2.0)


def requests_within(
    found: Curve, traffic: Traffic, max_ttft_s: float | None, max_tpot_s: float | None, most: float
) -> Array:
    """The most requests in flight with which a replica keeps both limits in the mean; 0: not even one does.

        requests = max of those with ttft <= max_ttft_s and tpot <= max_tpot_s

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers
    max_ttft_s, max_tpot_s : limits; None: none [s]
    most : how many are looked for at most [-]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: own derivation: search on a geometric grid, on latencies that do not fall with the requests.
    """
    ones = np.ones(found.most.shape)

    def keeps(requests: Array) -> Array:
        _, at = in_flight(found, traffic, requests)
        return np.asarray((at.ttft_s <= (max_ttft_s or np.inf)) & (at.tpot_s <= (max_tpot_s or np.inf)))

    return highest(ones, max(most, 1.0) * ones, lambda low, high, share: low * (high / low) ** share, keeps)


def users_at(found: Curve, traffic: Traffic, rate: ArrayLike, think_s: float, clients: ArrayLike = np.inf) -> Array:
    """Users whose requests come to a rate, as each thinks for a time between an answer and the next request.

        users = rate x (request(rate) + think)

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    rate : requests per second and replica, shape (..., placements) [1/s]
    think_s : mean time between an answer and the next request [s]
    clients : so many users at most, who wait for the others alone; by default any number [-]

    Returns
    -------
    ndarray of float, shape of the rates [-]

    Source: the response time law of interactive systems (Little's law for users who wait or think).
    """
    return np.asarray(as_array(rate) * (latencies(found, traffic, rate, None, clients).request_s + think_s))


def users_within(
    found: Curve, traffic: Traffic, think_s: float, max_ttft_s: float | None, max_tpot_s: float | None,
    percentile: float, clients: float,
) -> Array:  # fmt: skip
    """The most users with whom a replica keeps both limits at the percentile; 0: none does.

        users = rate x (request(rate) + think)                             rate: the highest that keeps the limits
        users = rate x (request(rate) + think + max_ttft_s - ttft(rate))   where that is the top rate

    A full replica takes as many more as may wait: each comes back only once he is answered.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    think_s : mean time between an answer and the next request [s]
    max_ttft_s, max_tpot_s : limits; None: none [s]
    percentile : of requests [-]
    clients : so many users at most [-]

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: the response time law of interactive systems.
    """
    rate = rate_within(found, traffic, max_ttft_s, max_tpot_s, percentile, clients)
    users = users_at(found, traffic, rate, think_s, clients)
    if max_ttft_s is None:
        return users
    spare_s = np.maximum(max_ttft_s - latencies(found, traffic, rate, percentile, clients).ttft_s, 0.0)
    full = (rate > 0) & (rate >= HIGHEST_LOAD * found.top_rate * (1.0 - 1e-9))
    return np.asarray(users + np.where(full, rate * spare_s, 0.0))


def users_rate(found: Curve, traffic: Traffic, users: ArrayLike, think_s: float) -> Array:
    """The rate at which so many users ask a replica, slowed by its own latencies.

        users = rate x (request(rate) + think),  rate <= 0.999 top rate

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    users : of one replica, shape (..., placements) [-]
    think_s : mean time between an answer and the next request [s]

    Returns
    -------
    ndarray of float, shape of the users [1/s]

    Source: the response time law of interactive systems, solved by search: its right side rises with the rate.
    """
    users = np.broadcast_to(as_array(users), np.broadcast_shapes(np.shape(users), found.most.shape))

    def keeps(rates: Array) -> Array:
        return np.asarray(users_at(found, traffic, rates, think_s, users) <= users)

    none, most = np.zeros(users.shape), np.broadcast_to(HIGHEST_LOAD * found.top_rate, users.shape)
    return highest(none, most, evenly, keeps, TO_THE_END)


def users_latencies(
    found: Curve, traffic: Traffic, users: ArrayLike, think_s: float, percentile: float | None = None
) -> tuple[Array, Latencies]:
    """Rate and latencies of a replica with so many users.

        request = users / rate - think      in the mean

    Users think for times that vary, so that their requests come by chance (see `latencies`); of those who find the
    replica full the waiting is what the rate leaves of their time.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    users : of one replica, shape (..., placements) [-]
    think_s : mean time between an answer and the next request [s]
    percentile : of requests, 50 to 99.9; None: the mean [-]

    Returns
    -------
    (ndarray, Latencies), shape of the users: requests per second [1/s], seconds [s]; unbounded where no request fits

    Source: the response time law of interactive systems.
    """
    users = np.broadcast_to(as_array(users), np.broadcast_shapes(np.shape(users), found.most.shape))
    rate = users_rate(found, traffic, users, think_s)
    mean, at = (latencies(found, traffic, rate, one, users) for one in (None, percentile))
    left_s = np.divide(users, rate, out=np.full(users.shape, np.inf), where=rate > 0) - think_s - mean.request_s
    full = rate >= HIGHEST_LOAD * found.top_rate
    wait_s = np.where(full, np.maximum(left_s, 0.0), 0.0)
    return rate, Latencies(at.ttft_s + wait_s, at.tpot_s, at.request_s + wait_s)
