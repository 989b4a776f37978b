"""Which sequences are tokenised: some at random, others in proportion to their length, spread over all files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.profiles.samples.classes import size_bytes
from xe_sizer.profiles.samples.spill import RECORD, UNKNOWN

if TYPE_CHECKING:
    from xe_sizer.profiles.samples.spill import Records, Spill

LONG_SHARE: Final = 0.6  # chosen: of the sample that is drawn in proportion to length, which the mean rests on
BUDGET_BYTES: Final = 12 << 20  # chosen: text that is tokenised for it, 10 s on one core
MESSAGE_BYTES: Final = 20.0  # about what a template adds to a message
SMALL_BYTES: Final = 4 << 20  # chosen: what is smaller is tokenised in full, in a few seconds
FEWEST: Final = 40


@frozen
class Picks:
    """Sequences to tokenise.

    weights : how many sequences of the files each stands for [-]; whole : whether these are all that are not known
    """

    records: Records
    weights: NDArray[np.float64]
    whole: bool


def weight_bytes(records: Records) -> NDArray[np.float64]:
    """What a sequence weighs where long ones are drawn more often [bytes]."""
    return size_bytes(records["classes"].astype(np.float64)) + MESSAGE_BYTES * records["messages"] + 1.0


def picked(spill: Spill, wanted: int, seed: int) -> Picks:
    """A sample of the sequences whose tokens are not known.

        expected draws of i = m_1 / n + m_2 w_i / W,  weight of a draw = 1 / that

    Systematic: one draw at random in each of m equal intervals, of the sequences (m_1) and of the bytes (m_2), so that
    every part of every file is drawn from.

    Parameters
    ----------
    wanted : m_1 + m_2, fewer where texts are long [-]

    Source: Hansen and Hurwitz, estimation from samples drawn with unequal probabilities.
    """
    totals = np.zeros(3)
    for chunk in unknown(spill):
        weights = weight_bytes(chunk)
        totals += (weights.size, weights.sum(), (weights**2).sum())
    sequences, total, squares = totals
    if not sequences:
        return Picks(np.zeros(0, RECORD), np.zeros(0), whole=True)
    if total <= SMALL_BYTES or (sequences <= wanted and total <= 3 * BUDGET_BYTES):
        records = np.concatenate(list(unknown(spill)))
        return Picks(records, np.ones(records.size), whole=True)
    even = _draws((1 - LONG_SHARE) * wanted, total / sequences)
    long = _draws(LONG_SHARE * wanted, squares / total)
    rng = np.random.default_rng(seed)
    points = [(np.arange(each) + rng.random(each)) / each for each in (even, long)]
    found, done = [], np.zeros(2)
    for chunk in unknown(spill):
        weights = weight_bytes(chunk)
        reached = [(done[0] + np.arange(1, weights.size + 1)) / sequences, (done[1] + np.cumsum(weights)) / total]
        found.append(chunk[np.sort(np.concatenate([_inside(*each) for each in zip(reached, points, strict=True)]))])
        done += (weights.size, weights.sum())
        points = [each[each >= last[-1]] for each, last in zip(points, reached, strict=True)]
    records = np.concatenate(found)
    weights = 1.0 / (even / sequences + long * weight_bytes(records) / total)
    return Picks(records, weights, whole=False)


def _draws(wanted: float, bytes_each: float) -> int:
    """How many draws the budget has room for."""
    return max(round(min(wanted, BUDGET_BYTES / 2 / bytes_each)), min(FEWEST, round(wanted)), 1)


def _inside(reached: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.intp]:
    """Places of a chunk in which the points lie that it reaches; the others come later."""
    return np.asarray(np.searchsorted(reached, points[points < reached[-1]], side="right"))


def unknown(spill: Spill) -> Iterator[Records]:
    """Sequences whose tokens are not known yet."""
    for chunk in spill.chunks():
        unknown = chunk[chunk["tokens"] == UNKNOWN]
        if unknown.size:
            yield unknown
