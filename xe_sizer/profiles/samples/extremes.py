"""The longest and the shortest sequence: the likeliest by a pass over bytes are tokenised until none can beat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.profiles.samples.picks import weight_bytes
from xe_sizer.profiles.samples.spill import RECORD, Records

MOST: Final = 512  # chosen: candidates that are tokenised
BUDGET_BYTES: Final = 16 << 20  # chosen: of their text
_AT_ONCE: Final = 8
_LARGEST: Final = 4  # by bytes are tokenised whatever the law says of them
_SHORTEST: Final = 16
Tokens = Callable[[Records], NDArray[np.float64]]


@frozen
class Extreme:
    """Tokens of the longest or shortest sequence, whether they are exact, and the file and number of its row."""

    tokens: float
    exact: bool
    file: int
    number: int


class Extremes:
    """Candidates for both ends, from records that come in chunks."""

    def __init__(self) -> None:
        self._known = [_none(), _none()]
        self._long = (_none(), np.zeros(0))
        self._large = (_none(), np.zeros(0))
        self._short = (_none(), np.zeros(0))

    def add_known(self, records: Records) -> None:
        """Sequences whose tokens are known."""
        for end, choose in enumerate((np.argmin, np.argmax)):
            both = np.concatenate([self._known[end], records])
            self._known[end] = both[[int(choose(both["tokens"]))]] if both.size else both

    def add(self, records: Records, expected: NDArray[np.float64], most: NDArray[np.float64]) -> None:
        """Sequences of which a law says how many tokens to expect, and how many there can be."""
        self._long = _best(*self._long, records, -most, MOST + 1)
        self._large = _best(*self._large, records, -weight_bytes(records), _LARGEST)
        self._short = _best(*self._short, records, expected, _SHORTEST)

    def shortest(self, tokens: Tokens | None) -> Extreme:
        """The shortest of those that should be. tokens : counts those of records; None: the law decides."""
        records, expected = self._short
        counted = tokens(records) if tokens and records.size else expected
        return _extreme(self._known[0], records, counted, np.argmin, exact=tokens is not None)

    def longest(self, tokens: Tokens | None) -> Extreme:
        """The longest; exact unless more sequences could be longer than may be tokenised."""
        long, most = self._long[0], -self._long[1]
        if tokens is None or not long.size:
            return _extreme(self._known[1], long, most, np.argmax, exact=tokens is not None)
        tried, counted = self._large[0], tokens(self._large[0])
        best = max(float(counted.max()), *self._known[1]["tokens"].tolist(), 0.0)
        spent = float(weight_bytes(tried).sum())
        start = 0
        while start < min(long.size, MOST) and most[start] > best and spent < BUDGET_BYTES:
            batch = long[start : start + _AT_ONCE]
            found = tokens(batch)
            tried, counted = np.concatenate([tried, batch]), np.concatenate([counted, found])
            best, spent = max(best, float(found.max())), spent + float(weight_bytes(batch).sum())
            start += _AT_ONCE
        beaten = start >= long.size or most[start] <= best
        return _extreme(self._known[1], tried, counted, np.argmax, exact=bool(beaten))


def _none() -> Records:
    return np.zeros(0, RECORD)


def _best(
    records: Records, scores: NDArray[np.float64], more: Records, their: NDArray[np.float64], most: int
) -> tuple[Records, NDArray[np.float64]]:
    """Those with the lowest scores of both, in order."""
    if their.size > most:
        nearest = np.argpartition(their, most)[:most]
        more, their = more[nearest], their[nearest]
    every, scored = np.concatenate([records, more]), np.concatenate([scores, their])
    order = np.argsort(scored, kind="stable")[:most]
    return every[order], scored[order]


def _extreme(
    known: Records, records: Records, tokens: NDArray[np.float64], choose: Callable[..., np.intp], *, exact: bool
) -> Extreme:
    """The first or last of what is known and what was counted."""
    every = np.concatenate([known, records])
    counted = np.concatenate([known["tokens"].astype(np.float64), tokens])
    place = int(choose(counted))
    one = every[place]
    return Extreme(max(float(counted[place]), 1.0), exact or not records.size, int(one["file"]), int(one["number"]))


def bound(predicted: NDArray[np.float64], highest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens that sequences can have at most, from the most over predicted tokens of a sample [tokens].

        predicted x (1 + 2 (highest - 1) + 0.05)

    Chosen: twice as far as the farthest of a sample.
    """
    return np.asarray(predicted * (1.05 + 2.0 * (highest - 1.0)))
