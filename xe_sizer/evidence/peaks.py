"""Peaks of memory and ends of it in published runs: how sure a job fits, and how far that can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.evidence.measured import measured_oom, measured_peak_bytes
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.evidence.training import PredictedRecord, predicted_peak_bytes
from xe_sizer.evidence.validate import predict_records
from xe_sizer.frozen import frozen
from xe_sizer.software.certainty import Spread

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
BINS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@frozen
class Peak:
    """Memory of a published run of which nothing had to be guessed.

    ratio : measured peak over the cautious prediction in the same metric, None where none was measured [-]
    room : memory of the card over the cautious peak [-]; fits : whether it ran, None where nobody says
    """

    source: str
    ratio: float | None
    room: float
    fits: bool | None


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
    """The memory of every run of training with a prediction and known lengths, batches and number of GPUs."""
    for found in predict_records(record for record in records if not record.serves):
        if isinstance(found, PredictedRecord) and not found.memory_guessed:
            yield _peak(found)


def _peak(found: PredictedRecord) -> Peak:
    sized, measured = found.sized, measured_peak_bytes(found.record.measured)
    ratio = None
    if measured is not None:
        conversion, metric = measured
        ratio = conversion.value / predicted_peak_bytes(sized.ledger, metric)
    oom = measured_oom(found.record.measured)
    return Peak(found.record.title, ratio, sized.usable_bytes / sized.peak_bytes, None if oom is None else not oom)


def spread_of(peaks: Iterable[Peak]) -> tuple[Spread, int, int]:
    """Quantiles of measured over predicted peaks, publications weighted alike; how many runs and publications."""
    known = [peak for peak in peaks if peak.ratio is not None]
    sources = [peak.source for peak in known]
    logs, weights = np.array([math.log(peak.ratio or 1.0) for peak in known]), source_weights(sources)
    low, middle, high = (math.exp(weighted_quantile(logs, weights, share)) for share in (0.1, 0.5, 0.9))
    return Spread(low, high, middle), len(known), len(set(sources))


def left_out(peaks: Sequence[Peak]) -> dict[str, Spread]:
    """For each publication the distribution that the others give."""
    return {
        source: spread_of(peak for peak in peaks if peak.source != source)[0]
        for source in {peak.source for peak in peaks}
    }


def peaks_below(peaks: Sequence[Peak], spreads: dict[str, Spread]) -> dict[float, float]:
    """Share of measured peaks, publications weighted alike, below each quantile that the others give [-]."""
    known = [peak for peak in peaks if peak.ratio is not None]
    weights = source_weights([peak.source for peak in known])
    said = np.array([float(spreads[peak.source].probability(peak.ratio or 1.0)) for peak in known])
    return {share: float((said <= share) @ weights / weights.sum()) for share in QUANTILES}


def reliability(peaks: Sequence[Peak], spreads: dict[str, Spread]) -> Iterator[Reliability]:
    """Of the runs that were given a probability to fit, the share that ran, publications weighted alike."""
    known = [peak for peak in peaks if peak.fits is not None]
    said = np.array([float(spreads[peak.source].probability(peak.room)) for peak in known])
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
