"""Lengths of the samples of a data set: a distribution, from a histogram or from a few statistics.

Symbols: n draws, F cumulative distribution of the lengths x_1 to x_k.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.immutable import Immutable

SUPPORT_POINTS: Final = 320  # chosen: 3 % apart over four decades: the longest of 128 is off by 0.1 %
ASSUMED_SIGMA: Final = 0.8  # assumed: spread of log-length where no maximum is known
ASSUMED_SAMPLES: Final = 10_000.0  # assumed where the size of the data set is not known either
SMALLEST_SAMPLE: Final = 2.0  # chosen: one sample has no spread; two keep a stated maximum above the mean


class TokenLengths(Immutable):
    """Distribution of tokens per sample.

    `lengths` (k,) is the support [tokens], strictly ascending; `probabilities` (k,) sum to 1 [-];
    `assumption` says how the distribution was obtained.
    """

    lengths: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    assumption: str

    @property
    def mean(self) -> float:
        """Mean tokens of a sample."""
        return float(self.lengths @ self.probabilities)

    @property
    def longest(self) -> float:
        """Tokens of the longest sample there is."""
        return float(self.lengths[-1])

    def share_above(self, tokens: float) -> float:
        """Share of the samples that are longer [-]."""
        return float(self.probabilities[self.lengths > tokens].sum())

    def truncated(self, seq_len: float) -> TokenLengths:
        """The same samples, each cut to at most `seq_len` tokens."""
        if seq_len >= self.longest:
            return self
        return _merged(np.minimum(self.lengths, seq_len), self.probabilities, self.assumption)

    def rounded_up(self, multiple: int) -> TokenLengths:
        """The same samples, each padded to a multiple of `multiple` tokens.

        A support value stands for the whole length nearest to it, hence the half token.
        """
        if multiple <= 1:
            return self
        blocks = np.maximum(np.ceil((self.lengths - 0.5) / multiple), 1.0)
        return _merged(blocks * multiple, self.probabilities, self.assumption)

    def expected_maximum(self, draws: ArrayLike) -> NDArray[np.float64]:
        """Expected longest of some independent samples; exact for the discrete distribution.

            E[max] = x_k - sum over i of (x_(i+1) - x_i) F(x_i)^n

        Parameters
        ----------
        draws : n, at least 1 [-]

        Returns
        -------
        ndarray of float, shape of `draws` [tokens]

        Source: order statistics.
        """
        return self.longest - self._shortfall(draws)[0]

    def deviation(self, draws: ArrayLike = 1.0) -> NDArray[np.float64]:
        """Standard deviation of the longest of some independent samples.

            s = sqrt(E[y^2] - E[y]^2),  y = x_k - max,  E[y^q] = sum over i of (y_i^q - y_(i+1)^q) F(x_i)^n

        Parameters
        ----------
        draws : n, at least 1 [-]

        Returns
        -------
        ndarray of float, shape of `draws` [tokens]

        Source: order statistics.
        """
        first, second = self._shortfall(draws)
        return np.sqrt(np.maximum(second - first**2, 0.0))

    def _shortfall(self, draws: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """First two moments of y = x_k - max of n draws: E[y^q] = sum_i (y_i^q - y_{i+1}^q) F(x_i)^n."""
        counts = np.asarray(draws, dtype=np.float64)
        below, first_gaps, second_gaps = self._gaps
        if not below.size:  # all samples alike
            return np.zeros(counts.shape), np.zeros(counts.shape)
        # A search asks for many layouts but few different batch sizes.
        different, where = np.unique(np.maximum(counts.ravel(), 1.0), return_inverse=True)
        powers = below ** different[:, np.newaxis]
        # Sums over the last axis round alike for one row and for many, which products with a matrix do not.
        first, second = (-np.sum(powers * gaps, axis=-1) for gaps in (first_gaps, second_gaps))
        return first[where].reshape(counts.shape), second[where].reshape(counts.shape)

    @cached_property
    def _gaps(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """F(x_i) below the longest, and the differences of y and of y^2 from one length to the next."""
        gaps = self.longest - self.lengths
        return np.cumsum(self.probabilities)[:-1], np.diff(gaps), np.diff(gaps**2)


def constant_lengths(tokens: float) -> TokenLengths:
    """Every sample has the same length.

        P(x = tokens) = 1

    Parameters
    ----------
    tokens : of each sample [tokens]

    Returns
    -------
    TokenLengths, shape (1,) [tokens]

    Source: definition.
    """
    return TokenLengths(np.array([float(tokens)]), np.ones(1), f"all samples have {tokens:g} tokens")


def histogram_lengths(lengths: ArrayLike, counts: ArrayLike) -> TokenLengths:
    """Build the distribution of counted samples.

        P(x_i) = count_i / sum of counts

    Parameters
    ----------
    lengths : in any order, shape (k,) [tokens]
    counts : samples of each length, shape (k,) [-]

    Returns
    -------
    TokenLengths, shape (distinct lengths,) [tokens]

    Raises
    ------
    InputError : the two differ in size, a length is not above 0, a count is negative, or all are 0

    Source: definition.
    """
    support = np.asarray(lengths, dtype=np.float64).ravel()
    weights = np.asarray(counts, dtype=np.float64).ravel()
    checks = (
        (support.size == weights.size, f"{support.size} lengths but {weights.size} counts"),
        (bool(np.all(support > 0)), "a length is not greater than 0"),
        (bool(np.all(weights >= 0)), "a count is negative"),
        (bool(np.any(weights > 0)), "no sample is counted"),
    )
    problems = [Problem(f"token histogram: {message}") for passed, message in checks if not passed]
    if problems:
        raise InputError(problems)
    counted = weights > 0
    return _merged(support[counted], weights[counted] / weights.sum(), "histogram")


def statistics_lengths(
    samples: float | None, mean: float, minimum: float | None = None, maximum: float | None = None
) -> TokenLengths:
    """A discretised log-normal between `minimum` and `maximum` with the stated mean.

        F(maximum)^n = 1/2,  mu = ln(maximum) - z sigma,  Phi(z) = 2^(-1/n)

    sigma is such that the median of the longest of n draws is the maximum; mu is then moved until the mean after
    truncation is exact. Without a maximum sigma is ASSUMED_SIGMA and the maximum is that same median; without a minimum
    it is 1 token; without a number of samples ASSUMED_SAMPLES. A mean outside of minimum to maximum becomes the nearer
    of the two (scenarios are checked before).

    Parameters
    ----------
    samples : n, in the data set; None: not known [-]
    mean, minimum, maximum : of a sample; None: not known [tokens]

    Returns
    -------
    TokenLengths, shape (SUPPORT_POINTS,), or fewer where all samples are alike [tokens]

    Source: order statistics, docs/decisions/padding.md.
    """
    count = ASSUMED_SAMPLES if samples is None else max(float(samples), SMALLEST_SAMPLE)
    number = f"{count:.0f} assumed" if samples is None else f"{samples:.0f}"
    z = _median_maximum(count)
    shortest = max(1.0, minimum or 1.0)
    if maximum is None:
        longest = max(mean * math.exp(z * ASSUMED_SIGMA - ASSUMED_SIGMA**2 / 2), shortest)
        assumption = f"log-normal fitted to the mean of {number} samples, sigma {ASSUMED_SIGMA:g} assumed"
    else:
        longest = max(float(maximum), shortest)
        assumption = f"log-normal fitted to mean and max of {number} samples"
    if mean >= longest or shortest >= longest or (maximum is None and mean <= shortest):
        return constant_lengths(longest if maximum is not None else mean)
    if mean <= shortest:
        return TokenLengths(np.array([shortest, longest]), np.array([1.0, 0.0]), assumption)
    support = np.geomspace(shortest, longest, SUPPORT_POINTS)
    sigma = ASSUMED_SIGMA if maximum is None else _fitted_sigma(support, mean, z)
    return TokenLengths(support, _log_normal_with_mean(support, mean, sigma, z), assumption)


def mixed_lengths(first: TokenLengths, second: TokenLengths) -> TokenLengths:
    """Lengths of sequences of which half are of one kind and half of another.

        P(x) = (P_1(x) + P_2(x)) / 2

    Parameters
    ----------
    first, second : distributions, shape (k,) and (l,) [tokens]

    Returns
    -------
    TokenLengths, shape (distinct lengths,) [tokens]

    Source: definition; chosen and rejected answers of preference pairs.
    """
    lengths = np.concatenate([first.lengths, second.lengths])
    halves = np.concatenate([first.probabilities, second.probabilities]) / 2.0
    return _merged(lengths, halves, first.assumption)


def _merged(lengths: NDArray[np.float64], probabilities: NDArray[np.float64], assumption: str) -> TokenLengths:
    """A distribution whose equal lengths are joined and sorted."""
    support, where = np.unique(lengths, return_inverse=True)
    joined = np.zeros(support.size)
    np.add.at(joined, where.ravel(), probabilities)
    return TokenLengths(support, joined, assumption)


def _median_maximum(draws: float) -> float:
    """z with Phi(z)^n = 1/2: the median of the maximum of n standard normals [-]."""
    tail = -math.expm1(-math.log(2.0) / draws)
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0.5 * math.erfc(middle / math.sqrt(2.0)) > tail:
            low = middle
        else:
            high = middle
    return low


def _weights(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp, normalised to sum 1, safe against overflow."""
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())


def _fitted_sigma(support: NDArray[np.float64], mean: float, z: float) -> float:
    """sigma for which the log-normal with mu = ln(longest) - z sigma, cut to the support, has this mean.

    The mean falls with sigma until mu reaches the shortest length, sigma = ln(longest / shortest) / z. A mean
    that is lower still keeps that sigma, and `_log_normal_with_mean` moves mu.
    """
    below_longest = np.log(support[-1] / support)
    high = float(below_longest[0]) / z
    low = high * 1e-3
    for _ in range(18):  # 4e-6 of the range; mu takes up the rest
        sigma = (low + high) / 2
        if _weights(-((below_longest / sigma - z) ** 2) / 2) @ support > mean:
            low = sigma
        else:
            high = sigma
    return high


def _log_normal_with_mean(support: NDArray[np.float64], mean: float, sigma: float, z: float) -> NDArray[np.float64]:
    """Probabilities (k,) of a log-normal on a log-spaced support; mu solved so that the mean is exact.

    Newton's method on t = mu / sigma^2 (the weights are exp(t ln x - (ln x)^2 / (2 sigma^2)), d mean / dt is
    the covariance of x and ln x), with bisection where a step leaves the bracket.
    """
    logs = np.log(support)
    curvature = -(logs**2) / (2 * sigma**2)
    bound = 60.0 / float(logs[1] - logs[0]) + float(np.abs(logs).max()) / sigma**2
    low, high, tilt = -bound, bound, (float(logs[-1]) - z * sigma) / sigma**2
    for _ in range(80):
        probabilities = _weights(tilt * logs + curvature)
        error = float(probabilities @ support) - mean
        if abs(error) <= 1e-12 * mean:
            break
        low, high = (low, tilt) if error > 0 else (tilt, high)
        slope = float((probabilities * logs) @ support) - (error + mean) * float(probabilities @ logs)
        newton = tilt - error / slope if slope > 0 else low
        tilt = newton if low < newton < high else (low + high) / 2
    return probabilities
