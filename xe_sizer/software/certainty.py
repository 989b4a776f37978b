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
