"""How sure a limit is met: the distribution behind an 80 % range, of one value or of many.

What is off by a factor follows a two-piece log-normal: one spread below the middle and one above it, so that a range
that reaches further up than down is read as such. Its 10 %, 50 % and 90 % quantiles are the low, middle and high of
the range.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array

NINE_TENTHS = 1.2815515655446004
"""The 90 % quantile of the standard normal distribution: inverse of Phi at 0.9 [-]."""
FARTHEST, HALVINGS = 8.0, 60  # chosen: standard deviations between which a score is sought, and steps: to rounding
_erf = np.vectorize(math.erf, otypes=[float])


@frozen(eq=True)
class Spread:
    """Factors on an estimate that the real value lies below with 10, 50 and 90 % [-]; low <= middle <= high."""

    low: float
    high: float
    middle: float = 1.0

    def probability(self, ratio: ArrayLike) -> Array:
        """The probability that the real value over its estimate is at most `ratio`.

            P(factor <= r) = Phi(z90 ln(r / middle) / ln(high / middle))   for r >= middle
                           = Phi(z90 ln(r / middle) / ln(middle / low))    for r <  middle

        Where a side has no spread, all of its half lies in the middle.

        Parameters
        ----------
        ratio : array_like of float    limit over estimate [-]

        Returns
        -------
        ndarray of float, shape of `ratio` [-]

        Source: two-piece normal distribution (Fechner 1897; K. F. Wallis, Statistical Science 29, 2014, 106-112) of the
        logarithm, with both halves of equal weight, so that the middle is the median.
        """
        ratio = np.asarray(ratio, dtype=float)
        with np.errstate(divide="ignore"):
            log = np.log(np.maximum(ratio, 0.0) / self.middle)
        up, down = math.log(self.high / self.middle), math.log(self.middle / self.low)
        width = np.where(log >= 0.0, up, down)
        score = np.divide(log, width, out=np.where(log >= 0.0, np.inf, -np.inf), where=width > 0.0)
        return np.asarray(0.5 * (1.0 + _erf(score * (NINE_TENTHS / math.sqrt(2.0)))))

    def quantile(self, probability: float) -> float:
        """The factor that the real value over its estimate is at most with a probability; inverse of `probability`.

            factor = middle exp(Phi^-1(p) / z90 ln(high / middle))   for p >= 0.5, else with ln(middle / low)

        Parameters
        ----------
        probability : between 0 and 1, neither of them [-]

        Returns
        -------
        float [-]

        Source: as `probability`.
        """
        if probability == 0.5:
            return self.middle
        width = math.log(self.high / self.middle if probability > 0.5 else self.middle / self.low)
        return self.middle * math.exp(_score(probability) / NINE_TENTHS * width)


EXACT = Spread(1.0, 1.0)
"""What is known as it is: a number of GPUs."""


@frozen(eq=True)
class MemoryChance:
    """How likely memory suffices, by the room that the cautious peak of a verdict leaves.

    below, above : spread of the logarithm of need over memory where less, or more, is needed than there is [-]
    least : share of the runs that turn out otherwise whatever they are said to need [-]
    widening : factor on either spread where lengths, batch or micro-batch are a guess [-]
    """

    below: float
    above: float
    least: float
    widening: float = 1.0

    @property
    def of_a_guess(self) -> MemoryChance:
        """The chance where lengths, batch or micro-batch are a guess."""
        return replace(self, below=self.below * self.widening, above=self.above * self.widening, widening=1.0)

    def out_of_memory(self, ratio: ArrayLike, guessed: ArrayLike = False) -> Array:
        """The probability that a run goes out of memory.

            P = f + (1 - 2 f) Phi(ln r / s)

        with f = `least` and s = `below` for r < 1, else `above`, times `widening` where something is guessed. A run
        that is said to need just what there is may end either way, so that what fits does so with at least 50 %.

        Parameters
        ----------
        ratio : array_like of float    cautious peak over usable memory [-]
        guessed : array_like of bool    whether lengths, batch or micro-batch are a guess

        Returns
        -------
        ndarray of float, of the arguments' common shape [-]

        Source: f, both s and the widening are fitted to what became of published runs (scripts/build_residuals.py).
        The even chance at r = 1 is chosen, not fitted: more of those ran, as a failure is seldom published.
        """
        with np.errstate(divide="ignore"):
            log = np.log(np.asarray(ratio, dtype=float))
        spread = np.where(log < 0.0, self.below, self.above) * np.where(guessed, self.widening, 1.0)
        return np.asarray(self.least + (1.0 - 2.0 * self.least) * _phi(log / spread))

    def probability(self, room: ArrayLike) -> Array:
        """The probability that memory suffices: 1 - P(1 / room), with `room` usable memory over the cautious peak [-].

        Returns
        -------
        ndarray of float, shape of `room` [-]

        Source: as `out_of_memory`.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 - self.out_of_memory(1.0 / np.asarray(room, dtype=float)))

    def quantile(self, probability: float) -> float:
        """The room that suffices with a probability; inverse of `probability` [-].

            room = exp(s Phi^-1((p - f) / (1 - 2 f)))    with s = `below` for p >= 0.5, else `above`

        Infinite where so much is never reached, 0 where less is never possible.
        """
        share = (probability - self.least) / (1.0 - 2.0 * self.least)
        if not 0.0 < share < 1.0:
            return math.inf if share > 0.0 else 0.0
        return math.exp((self.below if share >= 0.5 else self.above) * _score(share))


def _score(share: float) -> float:
    """The inverse of Phi, by bisection to rounding; every command asks, and importing `statistics` takes far longer."""
    low, high = -FARTHEST, FARTHEST
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.erf(middle / math.sqrt(2.0)) < 2.0 * share - 1.0 else (low, middle)
    return high


def _phi(score: Array) -> Array:
    """The standard normal distribution [-]."""
    return np.asarray(0.5 * (1.0 + _erf(score / math.sqrt(2.0))))
