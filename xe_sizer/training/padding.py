"""What padding or packing makes of the samples of a data set.

Time follows the tokens that are processed, padding included; memory follows the longest sequence. Both come from the
distribution of sample lengths and from the way a stack forms batches (docs/decisions/padding.md).

Symbols: c(n) expected maximum of n standard normals, b micro-batch, d data-parallel ranks, g gradient accumulation
steps.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.immutable import Immutable
from xe_sizer.training.layout import PerLayout
from xe_sizer.training.token_lengths import ASSUMED_SAMPLES, TokenLengths

PACKED: Final = "packed"
LONGEST_IN_MICRO_BATCH: Final = "longest-in-micro-batch"
LONGEST_IN_GLOBAL_BATCH: Final = "longest-in-global-batch"
TO_SEQ_LEN: Final = "to-seq-len"
UNPADDED: Final = "none"
GROUPED: Final = "grouped-by-length"
TO_EACH_OTHER: Final = (LONGEST_IN_MICRO_BATCH, LONGEST_IN_GLOBAL_BATCH, GROUPED)
POLICIES: Final = (PACKED, LONGEST_IN_MICRO_BATCH, LONGEST_IN_GLOBAL_BATCH, TO_SEQ_LEN, GROUPED, UNPADDED)


class Sequences(PerLayout):
    """What a policy makes of the lengths; every array has the layouts' common shape."""

    mean_tokens: NDArray[np.float64]  # processed tokens of an average sequence, padding included
    critical_tokens: NDArray[np.float64]  # the same on the rank that the others wait for
    longest_tokens: NDArray[np.float64]  # longest sequence that memory must hold during the run
    padding_share: NDArray[np.float64]  # 1 - real tokens / processed tokens [-]
    real_tokens: NDArray[np.float64]  # tokens of an average sample that are trained on, after truncation

    @classmethod
    def of_length(cls, tokens: NDArray[np.float64]) -> Sequences:
        """All of one length under each layout, without padding."""
        return cls(tokens, tokens, tokens, np.zeros(np.shape(tokens)), tokens)


class _Batches(Immutable):
    """Micro-batch b, data-parallel ranks d and accumulation g [-], and whether ranks meet in every micro-batch."""

    b: NDArray[np.float64]
    d: NDArray[np.float64]
    g: NDArray[np.float64]
    meet_every_micro_batch: NDArray[np.bool_]


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

        mean = seq_len                       packed, to-seq-len
        mean = E[max of b], E[max of b g]    padded to the longest in the micro-batch, in the global batch
        mean = E[x]                          grouped by length, without padding

    Parameters
    ----------
    lengths, policy : distribution of the samples, one of POLICIES
    seq_len : longer samples are cut to it (packed: split) [tokens]
    micro_batch, data_parallel, grad_accum : b, d, g, broadcast together [-]
    synchronised_every_micro_batch : whether ranks meet in every micro-batch (ZeRO-3, FSDP) [-]
    samples : size of the data set, no batch draws more than that; None: not known [-]
    round_to : the collator pads to a multiple of this [tokens]

    Returns
    -------
    Sequences, shape that b, d and g broadcast to [tokens]

    Raises
    ------
    ValueError : no policy of this name

    Source: docs/decisions/padding.md: collators of Hugging Face and NeMo; order statistics.
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
        return unpadded_sequences(cut, batches, ASSUMED_SAMPLES if samples is None else most)
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


def unpadded_sequences(cut: TokenLengths, batches: _Batches, samples: float) -> Sequences:
    """Samples end to end in one row of tokens, per sample: a micro-batch has the sum of b lengths, not b longest.

        critical = mean + E[max of d] deviation / sqrt(b), or sqrt(b g) where ranks meet once a step
        longest  = max(mean + E[max of samples / b] deviation / sqrt(b), mean + (longest - mean) / b)

    Ranks wait for the largest of d sums of b lengths (normal limit). The largest micro-batch of the run holds the
    longest sample among average ones, or is the largest of all sums.

    Parameters
    ----------
    cut : lengths of samples after truncation [tokens]
    batches : b, d, g and whether ranks meet in every micro-batch, each of shape (layout,) [-]
    samples : of the data set [-]

    Returns
    -------
    Sequences, each figure of shape (layout,) [tokens]

    Source: own derivation: sums of independent lengths in the normal limit.
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
    """Expected maximum of some standard normals.

        c(n) = E[max of n],  c(1) = 0, c(2) = 1 / sqrt(pi), c(8) = 1.42

    Parameters
    ----------
    draws : n [-]

    Returns
    -------
    ndarray of float, shape of `draws` [-]

    Source: order statistics of the normal, integrated numerically.
    """
    return standard_normal().expected_maximum(draws)


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


@cache
def standard_normal() -> TokenLengths:
    """The standard normal in bins of 1/64 up to 9 sigma: E[max] is a trapezoid rule, exact to 1e-9."""
    values = np.arange(-9.0, 9.0 + 1 / 128, 1 / 64)
    edges = values[:-1] + 1 / 128
    below = np.array([0.5 * math.erfc(-edge / math.sqrt(2.0)) for edge in edges])
    probabilities = np.diff(below, prepend=0.0, append=1.0)
    return TokenLengths(values, probabilities, "standard normal")
