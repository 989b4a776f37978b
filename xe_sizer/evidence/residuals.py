"""Residuals of measured runs by kind of run: what the ranges of estimates rest on, and how the runs fared in them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.evidence.predict import answered, timed
from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.uncertainty import ANY, Observed, Residuals, blended, own_group, reaching
from xe_sizer.training.uncertainty import explained_by

if TYPE_CHECKING:
    from xe_sizer.evidence.predict import PredictedRecord, ReinforcedRecord
    from xe_sizer.evidence.records import Record
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.software.uncertainty import Group, Seen, Table

# Ten per cent a side: about eight in ten of the runs of publications left out lie inside, as it should be.
LOW, HIGH = 0.1, 0.9
# A run that is off by more than this factor was another job than its record says, and must not set a group's range.
FARTHEST = math.log(3.0)
# The same for the slow end of a stack's own runs, which reaches further: chosen so that one in ten of the runs of
# publications left out exceed their range.
SLOWEST = math.log(6.0)
LEAST_RUNS = 4  # fewer say nothing about quantiles


class Run(Immutable):
    """A measured run: the stack that predicts it, its kind of job, its source, and log(measured / predicted).

    inside : whether it lies in the range that it was given
    explained : what the spread of a run of training goes with, `explained_by` of its job; None: stack and kind
    """

    stack: str
    kind: str
    assumed: bool
    source: str
    log_ratio: float
    inside: bool = False
    explained: tuple[str, str] | None = None

    @property
    def group(self) -> tuple[str, str]:
        """The group whose quantiles make its range."""
        return self.explained or (self.stack, self.kind)


def collect_runs(records: Iterable[Record]) -> list[Run]:
    """All records that have a time and a prediction."""
    return [_run(found, prediction) for found, prediction in timed(records)]


def _run(found: PredictedRecord | ReinforcedRecord, prediction: Prediction) -> Run:
    job = found.sized.resolved.job
    known = BUILT_IN.names("stack")
    stack = job.stack.name if job.stack.name in known else job.stack.parent or job.stack.name
    kind = job.method.evidence
    return Run(stack, kind, found.guessed, *_deviation(prediction), explained=explained_by(job))


def collect_serving_runs(records: Iterable[Record]) -> list[Run]:
    """All latencies and rates of inference with a prediction; the engine is the stack, the quantity the kind.

    A latency without bound, of a load that is more than the prediction takes, has no ratio and is left out.
    """
    return [
        Run(found.served.resolved.job.engine.name, prediction.quantity, found.guessed, *_deviation(prediction))
        for found, prediction in answered(records)
        if math.isfinite(float(prediction.predicted))
    ]


def _deviation(prediction: Prediction) -> tuple[str, float, bool]:
    """Source, log(measured / predicted), and whether what was measured lies in the range."""
    measured, low, high = float(prediction.measured), prediction.low, prediction.high
    inside = low is not None and high is not None and low <= measured <= high
    return prediction.source, math.log(measured / float(prediction.predicted)), inside


def observed(runs: Iterable[Run]) -> Seen:
    """How the runs of every stack and kind of job fared, where nothing of them had to be guessed."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if not run.assumed:
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
    """Quantiles of every group with enough runs, each source weighted alike."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        for stack, kind in product(*((ANY, name) for name in run.group)):
            groups[stack, kind, run.assumed].append(run)
    return {group: _residuals(members) for group, members in groups.items() if len(members) >= LEAST_RUNS}


def _residuals(members: Sequence[Run]) -> Residuals:
    ratios = np.clip([run.log_ratio for run in members], -FARTHEST, FARTHEST)
    weights = source_weights([run.source for run in members])
    low, high = (weighted_quantile(ratios, weights, share) for share in (LOW, HIGH))
    return Residuals(len(members), len({run.source for run in members}), low, high)


def coverage(runs: Sequence[Run]) -> float:
    """Share of runs inside the range that they were given, sources weighted alike [-]."""
    return _share(np.array([run.inside for run in runs]), runs)


def left_out_coverage(runs: Sequence[Run], kind: str | None = None) -> float:
    """Share of runs inside a range that their own source had no part in, sources weighted alike [-].

    kind : of the runs that are counted; None: all
    """
    logs, (low, high) = np.array([run.log_ratio for run in runs]), left_out_ranges(runs)
    counted = _of_kind(runs, kind)
    return _share(((low <= logs) & (logs <= high))[counted], [runs[place] for place in counted])


def left_out_width(runs: Sequence[Run], kind: str | None = None) -> float:
    """Median of high over low of ranges that a run's own source had no part in, sources weighted alike [-]."""
    low, high = left_out_ranges(runs)
    counted = _of_kind(runs, kind)
    weights = source_weights([runs[place].source for place in counted])
    return math.exp(weighted_quantile((high - low)[counted], weights, 0.5))


def _of_kind(runs: Sequence[Run], kind: str | None) -> list[int]:
    return [place for place, run in enumerate(runs) if kind in (None, run.kind)]


def left_out_ranges(runs: Sequence[Run]) -> NDArray[np.float64]:
    """Ends of the range of log(measured / predicted) of every run by the other sources, shape (2, run) [-]."""
    ends = np.zeros((2, len(runs)))
    for source in {run.source for run in runs}:
        rest = [run for run in runs if run.source != source]
        table, seen = residual_table(rest), observed(rest)
        for place, run in enumerate(runs):
            if run.source == source:
                own = own_group(seen, run.stack, (run.kind, ANY)) if run.explained else None
                ends[:, place] = reaching(*blended(table, *run.group, run.assumed), own)
    return ends


def _share(inside: NDArray[np.bool_], runs: Sequence[Run]) -> float:
    weights = source_weights([run.source for run in runs])
    return float(inside @ weights / weights.sum())
