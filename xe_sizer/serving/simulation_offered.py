"""What a test of a service offers it, and what came of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.serving.traffic import even_spread

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.traffic import Traffic

EVEN_SPREAD = 0.02  # share by which a spread may differ from that of an even draw
SEED = 20  # of the lengths and times that are drawn: the same for every answer


@frozen
class Offered:
    """Requests in the order in which they come; arrays of shape (requests,).

    inputs, outputs : tokens of each prompt and answer [tokens]
    arrivals_s : when each comes; of a closed loop when its clients begin, of which the first `concurrency` count [s]
    concurrency : clients who ask again as they are answered; None: requests come at their times
    """

    inputs: Array
    outputs: Array
    arrivals_s: Array
    concurrency: int | None = None


def offered(
    traffic: Traffic, requests: int, concurrency: int | None = None, arrivals_s: ArrayLike = 0.0, seed: int = SEED
) -> Offered:
    """A test of so many requests whose lengths are drawn.

        length = mean x exp(sigma z - sigma^2 / 2),  sigma^2 = ln(1 + spread^2),  z normal      cut at the longest
        length = mean + (longest - mean) u,  u even from -1 to 1      where that has the spread

    Parameters
    ----------
    traffic : mean lengths of prompts and answers, and how they spread
    requests : of the whole test [-]
    concurrency : clients of a closed loop; None: requests come at `arrivals_s` [-]
    arrivals_s : when requests come, ascending; all at once by default [s]
    seed : of the numbers that are drawn

    Returns
    -------
    Offered, shape (requests,), whole tokens and seconds [s]

    Source: own definition of a spread, that of `Traffic`; means of the drawn lengths are those asked for.
    """
    random = np.random.default_rng(seed)
    inputs = _lengths(random, traffic.inputs, traffic.input_spread, traffic.longest_input, requests)
    outputs = _lengths(random, traffic.outputs, traffic.output_spread, traffic.longest_output, requests)
    return Offered(inputs, outputs, np.broadcast_to(as_array(arrivals_s), requests), concurrency)


def _lengths(random: np.random.Generator, mean: float, spread: float, longest: float, requests: int) -> Array:
    """Lengths of this mean and spread, at least one token each and none above the longest [tokens]."""
    if not spread or longest <= mean:
        return np.full(requests, max(mean, 1.0))
    if abs(spread - even_spread(mean, longest)) < EVEN_SPREAD * spread:
        drawn = (2.0 * random.random(requests) - 1.0) * (longest - mean)
        return np.asarray(np.clip(np.rint(drawn - drawn.mean() + mean), 1.0, longest))
    sigma = float(np.sqrt(np.log1p(spread**2)))
    drawn = np.exp(sigma * random.standard_normal(requests))
    scale = mean / drawn.mean()
    if longest < drawn.max() * scale:
        scale = _scale_of_cut(drawn, mean, longest)
    return np.asarray(np.clip(np.rint(drawn * scale), 1.0, longest))


def _scale_of_cut(drawn: Array, mean: float, longest: float) -> float:
    """Factor on drawn lengths with which those cut at the longest have this mean.

    mean(min(f x, longest)) = mean, so that f = (n mean - c longest) / sum of the others where the c longest are cut.
    """
    ascending = np.sort(drawn)
    before = np.cumsum(ascending)
    cut = np.arange(len(drawn) - 1, -1, -1.0)  # as many as lie above each
    scales = (len(drawn) * mean - cut * longest) / before
    inside = np.flatnonzero(scales * ascending <= longest)
    return float(scales[inside[-1]])


def poisson_arrivals(rate: float, requests: int, seed: int = SEED) -> Array:
    """Times of requests that come by chance at a rate.

        t_i = sum of i gaps, gaps exponential of mean 1 / rate

    Parameters
    ----------
    rate : requests per second [1/s]
    requests : how many [-]
    seed : of the numbers that are drawn

    Returns
    -------
    ndarray of float, shape (requests,), the first at zero [s]

    Source: a Poisson process.
    """
    gaps = np.random.default_rng(seed + 1).exponential(1.0 / rate, requests)
    return np.asarray(np.cumsum(gaps) - gaps[0])


@frozen
class Outcome:
    """What a test measures; arrays of shape (requests,), seconds since its begin [s].

    arrival_s, start_s, first_s, finish_s : when a request came, was taken up, gave its first token and its last
    inputs, outputs : tokens of it [tokens]
    gap_s, gap_counts : times between tokens of a request, and how many there were of each, shape (gaps,)
    preempted : how often a request lost its cache to others, and began again [-]
    """

    arrival_s: Array
    start_s: Array
    first_s: Array
    finish_s: Array
    inputs: Array
    outputs: Array
    gap_s: Array
    gap_counts: Array
    preempted: int

    @property
    def ttft_s(self) -> Array:
        """Time to the first token of each request [s]."""
        return np.asarray(self.first_s - self.arrival_s)

    @property
    def request_s(self) -> Array:
        """Time of each request from end to end [s]."""
        return np.asarray(self.finish_s - self.arrival_s)

    @property
    def tpot_s(self) -> Array:
        """Time per output token of each request, without the first one; zero for answers of one token [s]."""
        return np.asarray((self.finish_s - self.first_s) / np.maximum(self.outputs - 1.0, 1.0))

    @property
    def duration_s(self) -> float:
        """From the first request to the last answer [s]."""
        return float(self.finish_s.max() - self.arrival_s.min())

    @property
    def requests_per_s(self) -> float:
        """Of the whole test, with its beginning and its end, as benchmark tools print it [1/s]."""
        return len(self.finish_s) / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        return float(self.outputs.sum()) / self.duration_s

    @property
    def total_tokens_per_s(self) -> float:
        return float(self.outputs.sum() + self.inputs.sum()) / self.duration_s

    def gap_at_s(self, percentile: float) -> float:
        """The time between two tokens (ITL) that this share of them keeps [s]; percentile in per cent [-]."""
        if not self.gap_s.size:
            return 0.0
        order = np.argsort(self.gap_s)
        reached = np.cumsum(self.gap_counts[order]) / self.gap_counts.sum()
        place = min(int(np.searchsorted(reached, percentile / 100.0)), order.size - 1)
        return float(self.gap_s[order[place]])

    @property
    def mean_gap_s(self) -> float:
        """Time between two tokens of a request in the mean of all of them [s]."""
        return float((self.gap_s * self.gap_counts).sum() / self.gap_counts.sum()) if self.gap_s.size else 0.0

    def goodput(self, max_ttft_s: float | None = None, max_tpot_s: float | None = None) -> float:
        """Requests per second that keep both limits [1/s]."""
        good = np.ones(len(self.finish_s), dtype=bool)
        if max_ttft_s is not None:
            good &= self.ttft_s <= max_ttft_s
        if max_tpot_s is not None:
            good &= self.tpot_s <= max_tpot_s
        return float(good.sum()) / self.duration_s
