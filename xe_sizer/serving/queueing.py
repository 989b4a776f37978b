"""Latencies of requests that arrive at random: mean and percentiles, and the rate that a replica can take.

Arrivals are Poisson. A request waits for a place (where the cache or the engine's limit is full), then for the prompts
before it, then for its own prefill; afterwards it gets a token in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.traffic import HIGHEST_LOAD

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.serving.steady import Steady
    from xe_sizer.serving.traffic import Traffic

TRIED, REFINED = 33, 3  # values that a search tries at once, and how often it looks
TO_THE_END = 11  # how often it looks where as much is wanted as a float tells apart: 32^11 = 2^55
# Fields of a steady state other than the parts of its steps.
OF_A_STATE = ("running", "decoding", "step_s", "tpot_s", "prefill_s", "prompt_s", "requests_per_s", "room_s")


@frozen
class Curve:
    """A replica from one request inside to as many as fit; arrays of shape (states, placements).

    most : requests that fit at once, shape (placements,); below one where not even one does
    """

    states: Steady
    most: Array

    @property
    def rates(self) -> Array:
        """Requests finished per second, ascending (with a plateau where the step's tokens are full)."""
        return np.asarray(np.maximum.accumulate(self.states.requests_per_s, axis=0))

    @property
    def top_rate(self) -> Array:
        """The rate that a replica cannot exceed, shape (placements,) [1/s]; none where no request fits."""
        return np.where(self.most >= 1.0, self.rates[-1], 0.0)

    def __getitem__(self, index: slice | IntArray | NDArray[np.bool_]) -> Curve:
        """The curves of some placements."""
        states = {name: getattr(self.states, name)[:, index] for name in OF_A_STATE}
        return Curve(replace(self.states, **states), self.most[index])

    def at_rate(self, rate: ArrayLike, *values: Array) -> tuple[Array, ...]:
        """Values of the states at a rate per replica, linear between states, each of shape (..., placements)."""
        return _interpolated(as_array(rate), self.rates, values)

    def at_running(self, running: Array, *values: Array) -> tuple[Array, ...]:
        """Values of the states at a number of requests inside, linear between states, shape (..., placements)."""
        return _interpolated(running, self.states.running, values)


def _interpolated(x: Array, known: Array, values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Linear interpolation in every column at once; beyond the ends the nearest value.

    x : shape (..., columns); known : ascending along the first axis, shape (points, columns), as each of `values`
    """
    above = np.minimum(np.maximum((x[..., None, :] >= known).sum(axis=-2), 1), known.shape[0] - 1)
    columns = np.arange(known.shape[1])
    left, right = known[above - 1, columns], known[above, columns]
    share = np.divide(x - left, right - left, out=np.zeros(np.shape(x)), where=right > left)
    share = np.minimum(np.maximum(share, 0.0), 1.0)
    lows = (one[above - 1, columns] for one in values)
    return tuple(np.asarray(low + share * (one[above, columns] - low)) for low, one in zip(lows, values, strict=True))


@frozen
class Latencies:
    """Seconds at a percentile or in the mean, of the shape of the rates asked for."""

    ttft_s: Array
    tpot_s: Array
    request_s: Array

    @property
    def one(self) -> tuple[float, float, float]:
        """Of the one placement that they are of."""
        return float(self.ttft_s[0]), float(self.tpot_s[0]), float(self.request_s[0])


def latencies(
    found: Curve, traffic: Traffic, rate: ArrayLike, percentile: float | None = None, clients: ArrayLike = np.inf
) -> Latencies:
    """Latencies of one replica at a rate of arrivals.

        ttft = step / 2 + wait for a place + wait for prompts + prefill
        request = ttft + (outputs - 1) tpot
        wait for a place = S (1 + v^2) / 2 x rho^(sqrt(2 (c + 1)) - 1) / (c (1 - rho))
        wait for prompts = rho_p P (1 + v_p^2) / 2 / (1 - rho_p)

    c places, answers S long of spread v, load rho; P the time that a prompt adds to the steps of others, v_p the spread
    of prompts, rho_p = rate x P. Waits have exponential tails. The number of requests inside varies as a Poisson
    variable, and steps with it. Of N clients who wait for their answers a request finds those of the N - 1 others: it
    waits as at (N - 1) / N of the rate, and for a place only where clients are more than places.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    rate : requests per second and replica; at and above the top rate nothing is bounded, shape (..., placements) [1/s]
    percentile : of requests, 50 to 99.9; None: the mean [-]
    clients : of a replica who each have one request at most, shape of the rates; by default any number [-]

    Returns
    -------
    Latencies, shape of the rates, seconds [s]

    Source: Sakasegawa's approximation of M/G/c for places; M/G/1 (Pollaczek-Khinchine) for prompts; what a request
    finds among N clients after Bard (1979) and Schweitzer (1979), exact for one of them.
    """
    rate = np.broadcast_to(as_array(rate), np.broadcast_shapes(np.shape(rate), found.most.shape))
    deviations = 0.0 if percentile is None else NormalDist().inv_cdf(percentile / 100.0)
    sized = np.minimum(rate, HIGHEST_LOAD * found.top_rate)
    (inside,) = found.at_rate(sized, found.states.running)
    spread = deviations * np.sqrt(np.maximum(inside, 1.0))
    crowd = np.maximum(as_array(clients), 1.0)
    crowded = np.clip(inside + spread, 1.0, np.maximum(np.minimum(found.most, crowd), 1.0))
    states = found.states
    tpot_s, step_s, prefill_s = found.at_running(crowded, states.tpot_s, states.step_s, states.prefill_s)
    prompts, answers = 1.0, traffic.outputs
    if percentile is not None:
        prompts = traffic.lengths_at(traffic.inputs, traffic.input_spread, deviations) / traffic.inputs
        answers = traffic.lengths_at(traffic.outputs, traffic.output_spread, deviations)
    wait_s = _wait_s(found, traffic, sized * (1.0 - 1.0 / crowd), crowd, percentile)
    ttft_s = step_s / 2.0 + wait_s + prefill_s * prompts
    request_s = ttft_s + max(answers - 1.0, 0.0) * tpot_s
    unbounded = np.where(rate <= sized, 0.0, np.inf)
    return Latencies(ttft_s + unbounded, tpot_s, request_s + unbounded)


def _wait_s(found: Curve, traffic: Traffic, rate: Array, crowd: Array, percentile: float | None) -> Array:
    """Waiting for a place and for the prompts before, in the mean or at a percentile [s].

    rate : of the others' requests [1/s]; crowd : clients, who find a place each where there are as many [-]
    """
    places, top = np.maximum(found.most, 1.0), np.maximum(found.top_rate, 1e-12)
    load = np.minimum(rate / top, HIGHEST_LOAD)
    busy = np.where(crowd <= found.most, 0.0, load ** (np.sqrt(2.0 * (places + 1.0)) - 1.0))
    answer_s = places / top
    place_s = answer_s * (1.0 + traffic.output_spread**2) / 2.0 / (places * (1.0 - load))
    # Steps that take several prompts shorten the queue only for prompts that arrive together.
    ahead_at = np.minimum(found.rates * found.states.prompt_s, HIGHEST_LOAD)
    line_at = found.states.prompt_s * (1.0 + traffic.input_spread**2) / 2.0 / (1.0 - ahead_at)
    ahead, line_s = found.at_rate(rate, *(np.maximum.accumulate(one, axis=0) for one in (ahead_at, line_at)))
    ahead = ahead * np.minimum(rate / np.maximum(found.rates[0], 1e-12), 1.0)
    total = np.zeros(np.shape(rate))
    for chance, waiting_s in ((busy, place_s), (ahead, line_s)):
        if percentile is None:
            total = total + chance * waiting_s
        else:
            beyond = np.maximum(chance / (1.0 - percentile / 100.0), 1.0)
            total = total + waiting_s * np.log(beyond)
    return total


def rate_within(
    found: Curve, traffic: Traffic, max_ttft_s: float | None, max_tpot_s: float | None, percentile: float,
    clients: ArrayLike = np.inf,
) -> Array:  # fmt: skip
    """The highest rate of a replica that keeps both limits at the percentile; 0: none does.

        rate = max of those with ttft <= max_ttft_s and tpot <= max_tpot_s

    Latencies rise with the rate, so the limit is where the last of the tried rates keeps them, refined twice.

    Parameters
    ----------
    found : the curve of shape (states, placements)
    traffic : lengths of prompts and answers, and how they spread
    max_ttft_s, max_tpot_s : limits; None: none [s]
    percentile : of requests [-]
    clients : who each have one request at most; by default any number [-]

    Returns
    -------
    ndarray of float, shape (placements,) [1/s]

    Source: own derivation: search on a grid, on latencies that do not fall with the rate.
    """
    top = found.top_rate
    if max_ttft_s is None and max_tpot_s is None:
        return np.asarray(HIGHEST_LOAD * top)

    def keeps(rates: Array) -> Array:
        at = latencies(found, traffic, rates, percentile, clients)
        return np.asarray((at.ttft_s <= (max_ttft_s or np.inf)) & (at.tpot_s <= (max_tpot_s or np.inf)))

    none, most = np.zeros(top.shape), np.asarray(HIGHEST_LOAD * top)
    return highest(none, most, evenly, keeps)


def highest(
    low: Array, high: Array, between: Callable[[Array, Array, Array], Array], keeps: Callable[[Array], Array],
    rounds: int = REFINED,
) -> Array:  # fmt: skip
    """The highest value between two bounds up to which all are kept; 0 where the lower bound is not.

        highest = max of x with low <= x <= high and kept(y) for all y <= x

    Parameters
    ----------
    low, high : bounds, shape (..., placements), in the unit of the value [-]
    between : values at shares of the way from one bound to the other, shape (33, ..., placements) [-]
    keeps : whether values of that shape are kept [-]
    rounds : how often it looks, each time 32 times closer [-]

    Returns
    -------
    ndarray of float, shape (..., placements), in the unit of the bounds [-]

    Source: own derivation: 33 values at once, and closer between the last that is kept and the next.
    """
    shares = np.linspace(0.0, 1.0, TRIED).reshape(-1, *(1 for _ in low.shape))
    none = np.zeros(low.shape, dtype=bool)
    for _ in range(rounds):
        tried = between(low, high, shares)
        kept = np.logical_and.accumulate(keeps(tried), axis=0)
        last = np.maximum(kept.sum(axis=0) - 1, 0)
        none = none | ~kept[0]
        low, high = (
            np.take_along_axis(tried, place[None], axis=0)[0] for place in (last, np.minimum(last + 1, TRIED - 1))
        )
    return np.asarray(np.where(none, 0.0, low))


def evenly(low: Array, high: Array, share: Array) -> Array:
    """Values between two bounds, evenly spaced.

        value = low + share x (high - low)

    Parameters
    ----------
    low, high : bounds, shape (..., placements), in the unit of the value [-]
    share : of the way between them, shape (33, ..., 1) [-]

    Returns
    -------
    ndarray of float, shape (33, ..., placements), in the unit of the bounds [-]

    Source: own definition.
    """
    return low + share * (high - low)
