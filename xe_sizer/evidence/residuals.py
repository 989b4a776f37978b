"""Residuals of measured runs by kind of run: what the ranges of estimates rest on, and how the runs fared in them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.evidence.predict import answered, timed
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.serving.uncertainty import conditions as of_service
from xe_sizer.software.uncertainty import ANY, Observed, Residuals, range_of
from xe_sizer.training.uncertainty import STEP
from xe_sizer.training.uncertainty import conditions as of_training

if TYPE_CHECKING:
    from xe_sizer.evidence.predict import PredictedRecord, ReinforcedRecord, ServedRecord
    from xe_sizer.evidence.records import Record
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.software.uncertainty import Group, Seen, Table

INSIDE = 0.8
"""Share of the runs of a new publication that should lie in their range [-]."""
COMPLETE = 10.0
"""Publications to which runs under fewer conditions complete a group [-].

Chosen of 4 to 15 where every publication was left out, and a third of them in turn: with it 77 to 85 % of times,
latencies and rates lay inside. With fewer ranges are far wider, with more strata are told apart less.
"""
# A run that is off by more was another job than its record says, and must not say how far the runs of its stack are.
FARTHEST, SLOWEST = math.log(3.0), math.log(6.0)
LEAST_RUNS = 4  # fewer say nothing about quantiles


class Run(Immutable):
    """A measured run: what predicts it, its kind of job, its source, and log(measured / predicted).

    quantity, conditions : of the range that it was given
    above_least, above_most : log(measured / predicted) over the least and the most of what the tests that it may have
    been are predicted to show; None: of the one that is known
    inside : whether it lies in the range that it was given
    """

    stack: str
    kind: str
    guessed: bool
    source: str
    log_ratio: float
    inside: bool
    quantity: str
    conditions: tuple[str, ...]
    above_least: float | None = None
    above_most: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """What the low and the high end of a range would have had to be for the run to lie on them [-]."""
        least, most = self.above_least, self.above_most
        return self.log_ratio if least is None else least, self.log_ratio if most is None else most

    @property
    def groups(self) -> Iterator[Group]:
        """The groups that it belongs to, the widest first."""
        return ((self.quantity, self.conditions[:known]) for known in range(len(self.conditions) + 1))


def collect_runs(records: Iterable[Record]) -> list[Run]:
    """All records that have a time and a prediction."""
    return [_run(found, prediction) for found, prediction in timed(records)]


def _run(found: PredictedRecord | ReinforcedRecord, prediction: Prediction) -> Run:
    job = found.sized.resolved.job
    known = BUILT_IN.names("stack")
    stack = job.stack.name if job.stack.name in known else job.stack.parent or job.stack.name
    deviation = _deviation(prediction)
    return Run(stack, job.method.evidence, found.guessed, *deviation, STEP, of_training(job, found.guessed))


def collect_serving_runs(records: Iterable[Record]) -> list[Run]:
    """All latencies and rates of inference with a prediction; the engine is the stack, the quantity the kind.

    A latency without bound, of a load that is more than the prediction takes, has no ratio and is left out.
    """
    return [
        _served_run(found, prediction)
        for found, prediction in answered(records)
        if math.isfinite(float(prediction.predicted))
    ]


def _served_run(found: ServedRecord, prediction: Prediction) -> Run:
    resolved, quantity = found.served.resolved, prediction.quantity
    measured, expected = float(prediction.measured), float(prediction.predicted)
    ends = [math.log(measured / end) for end in found.predicted(quantity, expected)]
    engine, conditions = resolved.job.engine.name, of_service(resolved, found.tested)
    return Run(engine, quantity, found.guessed, *_deviation(prediction), quantity, conditions, *ends)


def _deviation(prediction: Prediction) -> tuple[str, float, bool]:
    """Source, log(measured / predicted), and whether what was measured lies in the range."""
    measured, low, high = float(prediction.measured), prediction.low, prediction.high
    inside = low is not None and high is not None and low <= measured <= high
    return prediction.source, math.log(measured / float(prediction.predicted)), inside


def observed(runs: Iterable[Run]) -> Seen:
    """How the runs of every stack and kind of job fared, where nothing of them had to be guessed."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if not run.guessed:
            for stack, kind in product((ANY, run.stack), (ANY, run.kind)):
                groups[stack, kind].append(run)
    return {group: _observed(members) for group, members in groups.items() if len(members) >= LEAST_RUNS}


def _observed(members: Sequence[Run]) -> Observed:
    sources = [run.source for run in members]
    ratios = np.exp(np.clip([run.log_ratio for run in members], -FARTHEST, SLOWEST))
    weights = source_weights(sources)
    low, median, high = (weighted_quantile(ratios, weights, share) for share in (0.1, 0.5, 0.9))
    inside = sum(run.inside for run in members)
    return Observed(len(members), len(set(sources)), inside, low, median, high)


def residual_table(runs: Sequence[Run]) -> Table:
    """Quantiles of every group of more than a few runs, each of its publications weighted alike.

        low = q(1 - s) of log(measured / least predicted)   high = q(s) of log(measured / most predicted)
        s = (1 + min(0.8 (n + 1) / n, 1)) / 2

    with n publications: the next one is as likely to be the farthest as each of them. A group of fewer than `COMPLETE`
    is completed by the next wider one, whose publications together weigh as many as are missing, and so on; n counts
    these too. Nothing is centred and nothing is cut off: what was another job than its record says is one that a user
    may have.

    Parameters
    ----------
    runs : of all quantities

    Returns
    -------
    Table, group -> Residuals

    Source: split conformal prediction by groups (V. Vovk, Asian Conference on Machine Learning 2012; L. Lei and
    L. Wasserman, J. R. Statist. Soc. B 76, 2014, 71-96), with the publication as what is exchanged (R. Dunn,
    L. Wasserman and A. Ramdas, J. Am. Statist. Assoc. 118, 2023); completing a group is chosen.
    """
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        for group in run.groups:
            groups[group].append(run)
    told = (group for group, members in groups.items() if len(members) >= LEAST_RUNS or not group[1])
    return {group: _residuals(group, groups) for group in told}


def _residuals(group: Group, groups: Mapping[Group, Sequence[Run]]) -> Residuals:
    quantity, conditions = group
    ends, weights, weighed = [], [], 0.0
    for known in range(len(conditions), -1, -1):
        members = groups[quantity, conditions[:known]]
        each = source_weights([run.source for run in members])
        publications = float(round(each.sum()))
        share = min((COMPLETE - weighed) / publications, 1.0) if weighed else 1.0
        if share > 0.0:
            ends += [run.ends for run in members]
            weights += list(each * share)
            weighed += publications * share
    most = 0.5 + 0.5 * min(INSIDE * (weighed + 1.0) / weighed, 1.0)
    sides = zip(np.array(ends).T, (1.0 - most, most), strict=True)
    low, high = (weighted_quantile(side, np.array(weights), quantile) for side, quantile in sides)
    mine = groups[group]
    return Residuals(len(mine), len({run.source for run in mine}), low, high)


def coverage(runs: Sequence[Run]) -> float:
    """Share of runs inside the range that they were given, sources weighted alike [-]."""
    return _share(np.array([run.inside for run in runs]), runs)


class LeftOut(Immutable):
    """Ranges of runs in which their own sources had no part.

    inside : whether each run lies in its range, shape (run,); width : log of high over low, shape (run,) [-]
    """

    runs: tuple[Run, ...]
    inside: NDArray[np.bool_]
    width: NDArray[np.float64]

    def coverage(self, places: Sequence[int] | None = None) -> float:
        """Share of the runs at such places, else of all, inside their range, sources weighted alike [-]."""
        at = range(len(self.runs)) if places is None else places
        return _share(self.inside[list(at)], [self.runs[place] for place in at])

    def median_width(self, places: Sequence[int] | None = None) -> float:
        """Median of high over low of the runs at such places, else of all, sources weighted alike [-]."""
        at = range(len(self.runs)) if places is None else places
        weights = source_weights([self.runs[place].source for place in at])
        return math.exp(weighted_quantile(self.width[list(at)], weights, 0.5))


def left_out(runs: Sequence[Run]) -> LeftOut:
    """The range of every run by the other sources."""
    (low, high), (least, most) = left_out_ranges(runs), np.array([run.ends for run in runs]).T
    return LeftOut(tuple(runs), (low <= least) & (most <= high), high - low + least - most)


def left_out_ranges(runs: Sequence[Run]) -> NDArray[np.float64]:
    """What a run's `ends` must lie between by the other sources, shape (2, run) [-]."""
    ends = np.zeros((2, len(runs)))
    for source in {run.source for run in runs}:
        table = residual_table([run for run in runs if run.source != source])
        for place, run in enumerate(runs):
            if run.source == source and (run.quantity, ()) in table:
                ends[:, place] = range_of(table, run.quantity, run.conditions)[:2]
    return ends


def _share(inside: NDArray[np.bool_], runs: Sequence[Run]) -> float:
    weights = source_weights([run.source for run in runs])
    return float(inside @ weights / weights.sum())
