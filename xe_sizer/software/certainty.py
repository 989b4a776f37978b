"""How sure a limit is met: the distribution behind an 80 % range, of one value or of many.

What is off by a factor follows a two-piece log-normal: one spread below the middle and one above it, so that a range
that reaches further up than down is read as such. Its 10 %, 50 % and 90 % quantiles are the low, middle and high of
the range.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array

NINE_TENTHS = 1.2815515655446004
"""The 90 % quantile of the standard normal distribution: inverse of Phi at 0.9 [-]."""
FARTHEST, BISECTIONS = 20.0, 60  # logarithms of room between which a quantile is sought, and halvings: to rounding
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
        from statistics import NormalDist

        width = math.log(self.high / self.middle if probability > 0.5 else self.middle / self.low)
        return self.middle * math.exp(NormalDist().inv_cdf(probability) / NINE_TENTHS * width)


EXACT = Spread(1.0, 1.0)
"""What is known as it is: a number of GPUs."""


# Chosen: where far more is needed than there is, every run ends for want of memory, however little is known of it.
FAR, FAR_SPREAD = 3.0, 0.5


@frozen(eq=True)
class MemoryChance:
    """How likely a run ends for want of memory, by what it is said to need over what there is.

    shift, sigma : of the logarithm of that ratio [-]; least : share of the runs that end so whatever they need [-]
    most : share of the runs whose conditions are what is supposed, and of which the distribution says [-]
    widening : factor on sigma where lengths, batch or micro-batch are a guess [-]
    """

    shift: float
    sigma: float
    least: float
    most: float
    widening: float = 1.0

    def out_of_memory(self, ratio: ArrayLike, guessed: ArrayLike = False) -> Array:
        """The probability that a run goes out of memory.

            P = f + (c - f) Phi((ln r + mu) / s) + (1 - c) Phi((ln r - ln 3) / 0.5)

        with f = `least`, c = `most`, mu = `shift`, s = `sigma`, times `widening` where something is guessed. A share
        1 - c of published runs did something else than their description says, which needs less: the last term.

        Parameters
        ----------
        ratio : array_like of float    cautious peak over usable memory [-]
        guessed : array_like of bool    whether lengths, batch or micro-batch are a guess

        Returns
        -------
        ndarray of float, of the arguments' common shape [-]

        Source: f, c, mu and s fitted to published runs by scripts/build_residuals.py; the last term is chosen.
        """
        with np.errstate(divide="ignore"):
            log = np.log(np.asarray(ratio, dtype=float))
        spread = self.sigma * np.where(guessed, self.widening, 1.0)
        known = self.least + (self.most - self.least) * _phi((log + self.shift) / spread)
        return np.asarray(known + (1.0 - self.most) * _phi((log - math.log(FAR)) / FAR_SPREAD))

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
        """The room that suffices with a probability; inverse of `probability`, by bisection [-].

        Infinite where so much is never reached.
        """
        if probability >= 1.0 - self.least:
            return math.inf
        low, high = -FARTHEST, FARTHEST
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.probability(math.exp(middle)) < probability else (low, middle)
        return math.exp(high)


def _phi(score: Array) -> Array:
    """The standard normal distribution [-]."""
    return np.asarray(0.5 * (1.0 + _erf(score / math.sqrt(2.0))))
