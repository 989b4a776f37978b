"""Token lengths of millions of sequences in bounded memory: finely binned, then in at most 64 bins."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen

STEP: Final = 0.0025  # of a bin, in the logarithm: whole lengths below 400 have one each
MOST_BINS: Final = 64
_BINS: Final = math.ceil(math.log(1 << 33) / STEP)
QUANTILES: Final = (0.05, 0.5, 0.9, 0.95, 0.99)


class Fine:
    """Counts and sums of tokens by length, in bins that are `STEP` apart."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS)
        self.sums = np.zeros(_BINS)

    def add(self, tokens: NDArray[np.float64]) -> None:
        """Sequences of so many tokens."""
        places = bin_of(tokens)
        self.counts += np.bincount(places, minlength=_BINS)
        self.sums += np.bincount(places, tokens, minlength=_BINS)

    def add_spread(self, counts: NDArray[np.float64], logs: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        """Predicted lengths, each spread as tokens over predicted tokens were: a convolution in the logarithm.

        counts : sequences in each bin by predicted length; logs, weights : of the spread, weights sum to 1
        """
        shifts = np.rint(logs / STEP).astype(int)
        low, high = int(shifts.min()), int(shifts.max())
        kernel = np.bincount(shifts - low, weights, minlength=high - low + 1)
        occupied = np.flatnonzero(counts)
        if not occupied.size:
            return
        first, last = int(occupied[0]), int(occupied[-1])
        spread = np.convolve(counts[first : last + 1], kernel)
        places = np.clip(np.arange(first + low, first + low + spread.size), 0, _BINS - 1)
        np.add.at(self.counts, places, spread)
        np.add.at(self.sums, places, spread * np.exp(places * STEP))


def bin_of(tokens: NDArray[np.float64]) -> NDArray[np.intp]:
    """The bin of each length."""
    return np.clip(np.rint(np.log(np.maximum(tokens, 1.0)) / STEP), 0, _BINS - 1).astype(np.intp)


@frozen
class Histogram:
    """Lengths (ascending) and how many sequences have each; at most MOST_BINS. quantiles : tokens by share."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    quantiles: tuple[float, ...]


def histogram(fine: Fine, total: float, shortest: float, longest: float) -> Histogram:
    """The lengths in few bins that keep the sum of all tokens, the shortest and the longest.

    total : tokens of all sequences, to which lengths between shortest and longest are scaled
    """
    occupied = fine.counts > 0
    counts = fine.counts[occupied]
    lengths = np.clip(fine.sums[occupied] / counts, shortest, longest)
    lengths = np.clip(lengths * total / float(lengths @ counts), shortest, longest)
    quantiles = _quantiles(lengths, counts)
    counts, lengths = _with_end(counts, lengths, longest, last=True)
    counts, lengths = _with_end(counts, lengths, shortest, last=False)
    groups = _groups(lengths, counts)
    joined = np.asarray(np.bincount(groups, counts), dtype=np.float64)
    means = np.asarray(np.bincount(groups, counts * lengths) / joined)
    return _whole(means, joined, quantiles)


def _quantiles(lengths: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[float, ...]:
    reached = (np.cumsum(counts) - counts / 2) / counts.sum()
    return tuple(float(np.interp(share, reached, lengths)) for share in QUANTILES)


def _with_end(
    counts: NDArray[np.float64], lengths: NDArray[np.float64], end: float, *, last: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same with one sequence at least as long, or as short, as the one at the end, taken from the nearest bins."""
    counts, order = counts.copy(), range(len(counts) - 1, -1, -1) if last else range(len(counts))
    missing = 1.0
    for place in order:
        taken = min(counts[place], missing)
        counts[place] -= taken
        missing -= taken
        if missing <= 0:
            break
    kept = counts > 1e-12
    own = np.array([1.0 - max(missing, 0.0)])
    parts = [(counts[kept], lengths[kept]), (own, np.array([end]))]
    both = parts if last else parts[::-1]
    return np.concatenate([each for each, _ in both]), np.concatenate([each for _, each in both])


def _groups(lengths: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.intp]:
    """Which bin each length goes to: the ends have their own, the others as many as are left.

    Bins are equally wide in the mean of two scales: the logarithm of the length, and the normal score of its rank. So
    neither the many lengths in the middle nor the few long ones, which padding follows, share a bin with far others.
    """
    if len(lengths) <= MOST_BINS:
        return np.arange(len(lengths))
    inner = slice(1, -1)
    rank = (np.cumsum(counts) - counts / 2) / counts.sum()
    score = np.array([NormalDist().inv_cdf(min(max(float(each), 1e-9), 1 - 1e-9)) for each in rank[inner]])
    logs = np.log(lengths[inner])
    scale = (_unit(score) + _unit(logs)) / 2
    middle = np.minimum((scale * (MOST_BINS - 2)).astype(int), MOST_BINS - 3)
    groups = np.concatenate([[0], 1 + middle, [MOST_BINS - 1]])
    return np.asarray(np.unique(groups, return_inverse=True)[1]).ravel()


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same from 0 to 1."""
    span = float(values[-1] - values[0])
    return (values - values[0]) / span if span > 0 else np.zeros(values.size)


def _whole(lengths: NDArray[np.float64], counts: NDArray[np.float64], quantiles: tuple[float, ...]) -> Histogram:
    """Whole lengths and counts; what a count is short of a whole goes on to the next, so that the sum stays."""
    tokens = np.maximum(np.rint(lengths), 1).astype(int)
    whole = np.diff(np.rint(np.cumsum(counts)), prepend=0.0)
    support, where = np.unique(tokens, return_inverse=True)
    joined = np.bincount(where.ravel(), whole)
    kept = joined > 0
    return Histogram(tuple(support[kept].tolist()), tuple(joined[kept].astype(int).tolist()), quantiles)
