"""Residuals of measured runs by kind of run: what the ranges of estimates rest on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.evidence.statistics import source_weights, weighted_quantile
from xe_sizer.evidence.validate import answered, timed
from xe_sizer.frozen import frozen
from xe_sizer.software.stack import stack_names
from xe_sizer.software.uncertainty import ANY, Residuals, blended

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.training import PredictedRecord
    from xe_sizer.result.accuracy import Prediction
    from xe_sizer.software.uncertainty import Group, Table

# Ten per cent a side is the aim: the spread of the sources seen falls short of that of unseen ones, so that these
# quantiles leave about one unseen run in five outside.
LOW, HIGH = 0.05, 0.95
# A run that is off by more than this factor was another job than its record says, and must not set a group's range.
FARTHEST = math.log(3.0)
LEAST_RUNS = 4  # fewer say nothing about quantiles


@frozen
class Run:
    """A measured run: the stack that predicts it, its kind of job, its source, and log(measured / predicted)."""

    stack: str
    kind: str
    assumed: bool
    source: str
    log_ratio: float


def runs_of(records: Iterable[Record]) -> list[Run]:
    """All records that have a time and a prediction."""
    return [_run(found, prediction) for found, prediction in timed(records)]


def _run(found: PredictedRecord, prediction: Prediction) -> Run:
    job = found.sized.resolved.job
    known = stack_names()
    stack = job.stack.name if job.stack.name in known else job.stack.parent or job.stack.name
    ratio = math.log(float(prediction.measured) / float(prediction.predicted))
    return Run(stack, job.method.kind.evidence, found.asked.guessed, prediction.source, ratio)


def serving_runs_of(records: Iterable[Record]) -> list[Run]:
    """All latencies and rates of inference that have a prediction; the engine is the stack, the quantity the kind."""
    return [
        Run(
            found.served.resolved.job.engine.name,
            prediction.quantity,
            found.guessed,
            prediction.source,
            math.log(float(prediction.measured) / float(prediction.predicted)),
        )
        for found, prediction in answered(records)
    ]


def residual_table(runs: Sequence[Run]) -> Table:
    """Quantiles of every group with enough runs, each source weighted alike."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        for stack in (ANY, run.stack):
            for kind in (ANY, run.kind):
                groups[stack, kind, run.assumed].append(run)
    return {group: _residuals(members) for group, members in groups.items() if len(members) >= LEAST_RUNS}


def _residuals(members: Sequence[Run]) -> Residuals:
    ratios = np.clip([run.log_ratio for run in members], -FARTHEST, FARTHEST)
    weights = source_weights([run.source for run in members])
    low, high = (weighted_quantile(ratios, weights, share) for share in (LOW, HIGH))
    return Residuals(len(members), len({run.source for run in members}), low, high)


def left_out_coverage(runs: Sequence[Run]) -> float:
    """Share of runs inside a range that their own source had no part in, sources weighted alike [-]."""
    inside = np.zeros(len(runs))
    for source in {run.source for run in runs}:
        table = residual_table([run for run in runs if run.source != source])
        for place, run in enumerate(runs):
            if run.source == source:
                low, high = blended(table, run.stack, run.kind, run.assumed)
                inside[place] = low <= run.log_ratio <= high
    weights = source_weights([run.source for run in runs])
    return float(inside @ weights / weights.sum())
