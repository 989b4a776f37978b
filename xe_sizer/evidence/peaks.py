"""Peaks of memory and ends of it in published runs: how sure a job fits, and how far that can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.evidence.measured import measured_oom, measured_peak_bytes
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.evidence.training import PredictedRecord, predicted_peak_bytes
from xe_sizer.evidence.validate import predict_records
from xe_sizer.frozen import frozen
from xe_sizer.software.certainty import MemoryChance, Spread

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
BINS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@frozen
class Peak:
    """Memory of a published run on a known number of GPUs.

    ratio : measured peak over the cautious prediction in the same metric, None where none was measured [-]
    room : memory of the card over the cautious peak [-]; fits : whether it ran, None where nobody says
    guessed : lengths, batch or micro-batch are; said_to_fit : the verdict on it
    """

    source: str
    ratio: float | None
    room: float
    fits: bool | None
    guessed: bool = False
    said_to_fit: bool = True


@frozen
class Reliability:
    """Runs that were given a probability by other publications: its mean, and the share of them that ran."""

    low: float
    high: float
    runs: int
    publications: int
    out_of_memory: int
    said: float
    ran: float


def peaks_of(records: Iterable[Record]) -> Iterator[Peak]:
    """The memory of every run of training with a prediction and a known number of GPUs."""
    for found in predict_records(record for record in records if not record.serves):
        if isinstance(found, PredictedRecord) and found.sized.resolved.gpus is not None:
            yield _peak(found)


def _peak(found: PredictedRecord) -> Peak:
    sized, measured = found.sized, measured_peak_bytes(found.record.measured)
    ratio = None
    if measured is not None:
        conversion, metric = measured
        ratio = conversion.value / predicted_peak_bytes(sized.ledger, metric)
    oom = measured_oom(found.record.measured)
    room, ran = found.judged.usable_bytes / found.judged.peak_bytes, None if oom is None else not oom
    return Peak(found.record.title, ratio, room, ran, found.memory_guessed, found.fits)


def spread_of(peaks: Iterable[Peak]) -> tuple[Spread, int, int]:
    """Quantiles of measured over predicted peaks, publications weighted alike; how many runs and publications."""
    known = [peak for peak in peaks if peak.ratio is not None and not peak.guessed]
    sources = [peak.source for peak in known]
    logs, weights = np.array([math.log(peak.ratio or 1.0) for peak in known]), source_weights(sources)
    low, middle, high = (math.exp(weighted_quantile(logs, weights, share)) for share in (0.1, 0.5, 0.9))
    return Spread(low, high, middle), len(known), len(set(sources))


# What the parameters of MemoryChance may be. More spread above would fit published runs better: some that ran are said
# to need several times the card, since they did not do what their description says. A scenario says what it does.
BELOW, ABOVE = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5), (0.15, 0.2, 0.25, 0.3, 0.4)
LEAST, WIDENINGS = (0.005, 0.01, 0.02), (1.0, 1.5, 2.0, 3.0)
CERTAIN = 0.005  # no single run may say more against a distribution than one of this probability [-]


class MemoryFits:
    """Every distribution that MemoryChance could be, and how badly each publication is said by it.

    The loss of a publication is the mean of -ln P(what became of the run), so that one can be left out by subtraction.
    """

    def __init__(self, peaks: Iterable[Peak]) -> None:
        known = [peak for peak in peaks if peak.fits is not None]
        self.sources = sorted({peak.source for peak in known})
        weights = source_weights([peak.source for peak in known])
        places = np.array([self.sources.index(peak.source) for peak in known])
        ended = np.array([not peak.fits for peak in known])
        ratio, guessed = np.array([1.0 / peak.room for peak in known]), np.array([peak.guessed for peak in known])
        self.tried = [MemoryChance(*one) for one in product(BELOW, ABOVE, LEAST, WIDENINGS)]
        self.losses = np.zeros((len(self.tried), len(self.sources)))
        for place, one in enumerate(self.tried):
            said = one.out_of_memory(ratio, guessed)
            lost = -np.log(np.clip(np.where(ended, said, 1.0 - said), CERTAIN, 1.0)) * weights
            self.losses[place] = np.bincount(places, lost, len(self.sources))

    @property
    def best(self) -> MemoryChance:
        """The most likely one, publications weighted alike."""
        return self.tried[int(self.losses.sum(axis=1).argmin())]

    def without(self, source: str) -> MemoryChance:
        """The most likely one by the other publications; by all where the source is none of them."""
        total = self.losses.sum(axis=1)
        if source in self.sources:
            total = total - self.losses[:, self.sources.index(source)]
        return self.tried[int(total.argmin())]


def left_out(peaks: Sequence[Peak]) -> dict[str, MemoryChance]:
    """For each publication the distribution that the others give."""
    fits = MemoryFits(peaks)
    return {source: fits.without(source) for source in {peak.source for peak in peaks}}


def spreads_left_out(peaks: Sequence[Peak]) -> dict[str, Spread]:
    """For each publication the distribution of peaks that the others give."""
    return {
        source: spread_of(peak for peak in peaks if peak.source != source)[0]
        for source in {peak.source for peak in peaks}
    }


@frozen
class Brier:
    """Mean squares of probability less outcome, publications weighted alike and each judged by the others [-].

    yes_or_no : of the plain verdict; of_peaks : of the spread of measured peaks; chance : of `MemoryChance`
    """

    yes_or_no: float
    of_peaks: float
    chance: float


def brier(peaks: Iterable[Peak], chances: Mapping[str, MemoryChance], spreads: Mapping[str, Spread]) -> Brier:
    """How good each way is to say whether a run fits.

        B = sum of w (said - fits)^2 / sum of w

    Source: G. W. Brier, Monthly Weather Review 78 (1950) 1-3.
    """
    known = [peak for peak in peaks if peak.fits is not None]
    weights, ran = source_weights([peak.source for peak in known]), np.array([bool(peak.fits) for peak in known])
    ways = (
        [float(peak.said_to_fit) for peak in known],
        [float(_centred(spreads[peak.source]).probability(peak.room)) for peak in known],
        [said_to_fit(peak, chances) for peak in known],
    )
    scores = [float(((np.array(said) - ran) ** 2) @ weights / weights.sum()) for said in ways]
    return Brier(*scores)


def _centred(spread: Spread) -> Spread:
    return Spread(low=min(spread.low, 1.0), high=max(spread.high, 1.0))


def said_to_fit(peak: Peak, chances: Mapping[str, MemoryChance]) -> float:
    """The probability that others give to a run to fit [-]."""
    return 1.0 - float(chances[peak.source].out_of_memory(1.0 / peak.room, peak.guessed))


def peaks_below(peaks: Sequence[Peak], spreads: Mapping[str, Spread]) -> dict[float, float]:
    """Share of measured peaks, publications weighted alike, below each quantile that the others give [-]."""
    known = [peak for peak in peaks if peak.ratio is not None and not peak.guessed]
    weights = source_weights([peak.source for peak in known])
    said = np.array([float(spreads[peak.source].probability(peak.ratio or 1.0)) for peak in known])
    return {share: float((said <= share) @ weights / weights.sum()) for share in QUANTILES}


def reliability(peaks: Sequence[Peak], chances: Mapping[str, MemoryChance]) -> Iterator[Reliability]:
    """Of the runs that were given a probability to fit, the share that ran, publications weighted alike."""
    known = [peak for peak in peaks if peak.fits is not None]
    said = np.array([said_to_fit(peak, chances) for peak in known])
    for low, high in pairwise(BINS):
        inside = np.flatnonzero((said >= low) & ((said < high) | (high == BINS[-1])))
        if inside.size:
            members = [known[place] for place in inside]
            sources = [peak.source for peak in members]
            ran, weights = np.array([bool(peak.fits) for peak in members]), source_weights(sources)
            yield Reliability(
                low=low,
                high=high,
                runs=len(members),
                publications=len(set(sources)),
                out_of_memory=int((~ran).sum()),
                said=float(said[inside] @ weights / weights.sum()),
                ran=float(ran @ weights / weights.sum()),
            )
