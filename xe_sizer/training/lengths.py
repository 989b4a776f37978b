"""Lengths of the samples of a data set, and what padding or packing makes of them.

Time follows the tokens that are processed, padding included; memory follows the longest sequence. Both come
from the distribution of sample lengths and from the way a stack forms batches (docs/decisions/padding.md).

Symbols: n draws, F cumulative distribution of the lengths, c(n) expected maximum of n standard normals,
b micro-batch, d data-parallel ranks, g gradient accumulation steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.errors import InputError, Problem

PACKED: Final = "packed"
LONGEST_IN_MICRO_BATCH: Final = "longest-in-micro-batch"
LONGEST_IN_GLOBAL_BATCH: Final = "longest-in-global-batch"
TO_SEQ_LEN: Final = "to-seq-len"
UNPADDED: Final = "none"
GROUPED: Final = "grouped-by-length"
POLICIES: Final = (PACKED, LONGEST_IN_MICRO_BATCH, LONGEST_IN_GLOBAL_BATCH, TO_SEQ_LEN, GROUPED, UNPADDED)

SUPPORT_POINTS: Final = 320  # 3 % apart over four decades: the longest of 128 is off by 0.1 %
ASSUMED_SIGMA: Final = 0.8  # spread of log-length where no maximum is known
ASSUMED_SAMPLES: Final = 10_000.0  # where the size of the data set is not known either
SMALLEST_SAMPLE: Final = 2.0  # one sample has no spread; two keep a stated maximum above the mean


@dataclass(frozen=True, eq=False)
class TokenLengths:
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
        """Expected longest of `draws` independent samples [tokens], in the shape of `draws` (any, >= 1).

        E[max] = x_k - sum_i (x_{i+1} - x_i) F(x_i)^n, exact for the discrete distribution (order statistics).
        """
        return self.longest - self._shortfall(draws)[0]

    def deviation(self, draws: ArrayLike = 1.0) -> NDArray[np.float64]:
        """Standard deviation of the longest of `draws` independent samples [tokens], shape of `draws`."""
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
        first, second = -(powers @ first_gaps), -(powers @ second_gaps)
        return first[where].reshape(counts.shape), second[where].reshape(counts.shape)

    @cached_property
    def _gaps(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """F(x_i) below the longest, and the differences of y and of y^2 from one length to the next."""
        gaps = self.longest - self.lengths
        return np.cumsum(self.probabilities)[:-1], np.diff(gaps), np.diff(gaps**2)


@dataclass(frozen=True, eq=False)
class Sequences:
    """What a policy makes of the lengths, per layout; every array has the layouts' common shape."""

    mean_tokens: NDArray[np.float64]  # processed tokens of an average sequence, padding included
    critical_tokens: NDArray[np.float64]  # the same on the rank that the others wait for
    longest_tokens: NDArray[np.float64]  # longest sequence that memory must hold during the run
    padding_share: NDArray[np.float64]  # 1 - real tokens / processed tokens [-]
    real_tokens: NDArray[np.float64]  # tokens of an average sample that are trained on, after truncation


@dataclass(frozen=True, eq=False)
class _Batches:
    """Micro-batch b, data-parallel ranks d and accumulation g [-], and whether ranks meet in every micro-batch."""

    b: NDArray[np.float64]
    d: NDArray[np.float64]
    g: NDArray[np.float64]
    meet_every_micro_batch: NDArray[np.bool_]


def constant_lengths(tokens: float) -> TokenLengths:
    """Every sample has `tokens` tokens."""
    return TokenLengths(np.array([float(tokens)]), np.ones(1), f"all samples have {tokens:g} tokens")


def histogram_lengths(lengths: ArrayLike, counts: ArrayLike) -> TokenLengths:
    """Lengths [tokens] with the number of samples of each, in any order.

    Raises InputError when the two differ in size, a length is not above 0, a count is negative, or all are 0.
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
    """A discretised log-normal between `minimum` and `maximum` with the stated mean [tokens].

    sigma is such that the median of the longest of `samples` draws is `maximum`: F(maximum)^n = 1/2, that
    is mu = ln(maximum) - z sigma with Phi(z) = 2^(-1/n). mu is then moved until the mean after truncation is
    exact. Without a maximum sigma is ASSUMED_SIGMA and the maximum is that same median; without a minimum it
    is 1 token; without a number of samples ASSUMED_SAMPLES. A mean outside of minimum to maximum becomes the
    nearer of the two (scenarios are checked before). Source: order statistics, docs/decisions/padding.md.
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


def sequences(
    lengths: TokenLengths,
    policy: str,
    *,
    seq_len: float,
    micro_batch: ArrayLike,
    data_parallel: ArrayLike,
    grad_accum: ArrayLike,
    synchronised_every_micro_batch: ArrayLike,
    samples: float | None = None,
    round_to: int = 1,
) -> Sequences:
    """Processed, critical and longest tokens of a sequence under a padding policy, one of POLICIES.

    Parameters
    ----------
    seq_len : float                                 longer samples are cut to it (packed: split) [tokens]
    micro_batch, data_parallel, grad_accum : array  b, d, g, broadcast together [-]
    synchronised_every_micro_batch : array of bool  ZeRO-3/FSDP: ranks meet in every micro-batch
    samples : float or None                         size of the data set: no batch draws more than that
    round_to : int                                  the collator pads to a multiple of this [tokens]

    Raises ValueError for an unknown policy. Sources: docs/decisions/padding.md.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown padding policy '{policy}', known: {', '.join(POLICIES)}")
    counts = (np.asarray(size, dtype=np.float64) for size in (micro_batch, data_parallel, grad_accum))
    batches = _Batches(*np.broadcast_arrays(*counts, np.asarray(synchronised_every_micro_batch, dtype=np.bool_)))
    if policy == PACKED:
        return _filled(batches.b.shape, seq_len, lengths.mean, lengths.mean / seq_len)
    cut = lengths.truncated(seq_len)
    if policy == TO_SEQ_LEN:
        return _filled(batches.b.shape, seq_len, cut.mean, 1.0)
    most = math.inf if samples is None else max(float(samples), 1.0)
    if policy == UNPADDED:
        return _unpadded(cut, batches, ASSUMED_SAMPLES if samples is None else most)
    return _padded_to_others(cut, cut.rounded_up(round_to).truncated(seq_len), policy, batches, most)


def _padded_to_others(
    cut: TokenLengths, padded: TokenLengths, policy: str, batches: _Batches, most: float
) -> Sequences:
    """Sequences as long as the longest of those that are batched together."""
    b, d, g = batches.b, batches.d, batches.g
    if policy == GROUPED:  # samples of a micro-batch, and of its ranks, are neighbours in a sorted pool
        mean = np.full(b.shape, padded.mean)
        return _padded(mean, mean, padded.longest, cut.mean)
    # NeMo's loader yields a rank's whole share of the global batch, pads it, then cuts it up.
    together = b * g if policy == LONGEST_IN_GLOBAL_BATCH else b
    mean = padded.expected_maximum(np.minimum(together, most))
    if policy == LONGEST_IN_GLOBAL_BATCH:
        critical = padded.expected_maximum(np.minimum(together * d, most))
    else:
        critical = _slowest_rank_tokens(padded, batches, most)
    return _padded(mean, critical, padded.longest, cut.mean)


def _padded(mean: NDArray[np.float64], critical: NDArray[np.float64], longest: float, real: float) -> Sequences:
    """One sample a sequence, of `real` tokens, padded to `mean` tokens on average."""
    return Sequences(
        mean_tokens=mean,
        critical_tokens=np.maximum(critical, mean),
        longest_tokens=np.full(mean.shape, longest),
        padding_share=np.maximum(1.0 - real / mean, 0.0),
        real_tokens=np.full(mean.shape, real),
    )


def _unpadded(cut: TokenLengths, batches: _Batches, samples: float) -> Sequences:
    """Samples end to end in one row of tokens, per sample: a micro-batch has the sum of b lengths, not b longest.

    Ranks wait for the largest of d sums of b lengths, or of b g where they meet once a step (normal limit). The
    largest micro-batch of the run holds the longest sample among average ones, or is the largest of all sums.
    """
    b, d, spread = batches.b, batches.d, cut.deviation()
    summed = np.where(batches.meet_every_micro_batch, b, b * batches.g)
    critical = cut.mean + expected_normal_maximum(d) * spread / np.sqrt(summed)
    largest = cut.mean + expected_normal_maximum(np.maximum(samples / b, d)) * spread / np.sqrt(b)
    with_longest = cut.mean + (cut.longest - cut.mean) / b
    longest = np.minimum(np.maximum(largest, with_longest), cut.longest)
    mean = np.full(b.shape, cut.mean)
    return replace(_padded(mean, np.minimum(critical, cut.longest), cut.longest, cut.mean), longest_tokens=longest)


def expected_normal_maximum(draws: ArrayLike) -> NDArray[np.float64]:
    """Expected maximum c(n) of `draws` standard normals [-]; c(1) = 0, c(2) = 1/sqrt(pi), c(8) = 1.42."""
    return _standard_normal().expected_maximum(draws)


def _slowest_rank_tokens(padded: TokenLengths, batches: _Batches, most: float) -> NDArray[np.float64]:
    """Tokens per sequence on the critical path when each micro-batch is padded to its own longest.

    Ranks that meet in every micro-batch wait for the longest of b d samples each time: e = E[max of b d].
    Ranks that meet once a step wait for the largest of d sums over g micro-batches. With m and s the mean and
    deviation of the longest of b, and u = E[max of b d g], per micro-batch the larger of

    - m + ((sqrt(g) - 1) c(d) s + e - m) / g: the normal limit, where e - m - c(d) s corrects for skewness,
      which falls as 1/sqrt(g) (leading order of the Cornish-Fisher expansion);
    - (u + (g - 1) (d g m - u) / (d g - 1)) / g: the rank that has the longest micro-batch of all, the others
      being average; a lower bound that is tight where a few samples are far longer than the rest.

    At most e. Exact for g = 1 and for d = 1.
    """
    b, d, g = batches.b, batches.d, batches.g
    mean = padded.expected_maximum(np.minimum(b, most))
    every = padded.expected_maximum(np.minimum(b * d, most))
    top = padded.expected_maximum(np.minimum(b * d * g, most))
    spread = padded.deviation(np.minimum(b, most)) * expected_normal_maximum(d)
    normal = mean + ((np.sqrt(g) - 1.0) * spread + every - mean) / g
    others = (d * g * mean - top) / np.maximum(d * g - 1.0, 1.0)
    outlier = (top + (g - 1.0) * others) / g
    once = np.minimum(np.maximum(normal, outlier), every)
    return np.where(batches.meet_every_micro_batch, every, once)


def _filled(shape: tuple[int, ...], seq_len: float, real: float, per_sample: float) -> Sequences:
    """Every sequence has `seq_len` tokens; `per_sample` of them hold the `real` tokens of a sample."""
    full = np.full(shape, float(seq_len))
    return Sequences(
        mean_tokens=full,
        critical_tokens=full,
        longest_tokens=full,
        padding_share=np.full(shape, max(1.0 - real / (seq_len * per_sample), 0.0)),
        real_tokens=np.full(shape, real),
    )


def _merged(lengths: NDArray[np.float64], probabilities: NDArray[np.float64], assumption: str) -> TokenLengths:
    """A distribution whose equal lengths are joined and sorted."""
    support, where = np.unique(lengths, return_inverse=True)
    joined = np.zeros(support.size)
    np.add.at(joined, where.ravel(), probabilities)
    return TokenLengths(support, joined, assumption)


@cache
def _standard_normal() -> TokenLengths:
    """The standard normal in bins of 1/64 up to 9 sigma: E[max] is a trapezoid rule, exact to 1e-9."""
    values = np.arange(-9.0, 9.0 + 1 / 128, 1 / 64)
    edges = values[:-1] + 1 / 128
    below = np.array([0.5 * math.erfc(-edge / math.sqrt(2.0)) for edge in edges])
    probabilities = np.diff(below, prepend=0.0, append=1.0)
    return TokenLengths(values, probabilities, "standard normal")


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
