"""A stack fitted to measurements of one's own cluster: a few named factors, held near those of the parent.

The factors multiply what the parent stack says of a kind of work. They are found in the logarithm of the step time,

    log measured = log predicted(factors) + noise,   log factor ~ N(0, PRIOR_SPREAD^2),   noise ~ Student-t

by iteratively reweighted least squares on numerical derivatives, with the layout of every record held fixed. What the
records do not determine stays where the parent has it; a record that is far off, such as one of another software
version, counts little. Their spread is that of the posterior. Source: Gelman et al., Bayesian Data Analysis, chapter
14 and 17 (regression with an informative prior, robust inference).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.flags import RecordRegistry
from xe_sizer.evidence.prediction import reason_of
from xe_sizer.evidence.training import predict_record, step_time
from xe_sizer.frozen import frozen
from xe_sizer.software.stack import load_stack
from xe_sizer.training.device import device_of
from xe_sizer.training.step import timeline

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.training import PredictedRecord
    from xe_sizer.software.stack import Stack

Vector = NDArray[np.float64]

EFFICIENCIES = ("matmul", "attention", "memory_bound", "collectives")
LAUNCHES = ("forward_launch_us", "backward_launch_us", "micro_batch_overhead_ms", "step_overhead_ms")
FACTORS = (*EFFICIENCIES, "launches")
PRIOR_SPREAD = 0.35  # a factor is within 0.7 to 1.4 of the parent's in two cases of three
NOISE = 0.08  # relative, what two runs of the same job differ by with other nodes and versions
STEP = 0.2  # of a derivative, in log
ROUNDS, REWEIGHTS = 3, 30
LEAST_RECORDS = 2
COVERED = 0.8  # share of the residuals inside the range that the new stack states
LARGEST_FACTOR = 1.5  # what a stack file may say
FOLDS = 5
FREEDOM = 4.0  # degrees of freedom of the noise: one record in ten may be off by far


@frozen
class Factor:
    """How much faster (efficiencies) or costlier (launches) than the parent's, and its relative standard error."""

    name: str
    value: float
    error: float


_NEEDED = "a record needs a time or a rate under measured: step_time_s, samples_per_s or tokens_per_s_per_gpu"


@frozen
class Calibration:
    """A fitted stack, what it was fitted to, and median absolute errors [-].

    before : of the parent; after : of the fit on its own records; left_out : of fits that have not seen the record
    used, skipped : ids of records that have a time, and reasons for the others
    """

    stack: Stack
    parent: str
    factors: tuple[Factor, ...]
    used: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    before: float
    after: float
    left_out: float | None

    @property
    def fitted_keys(self) -> dict[str, dict[str, float]]:
        """Section of a stack file -> key -> value, of all that the factors multiply."""
        parts = (("efficiency", self.stack.efficiency, EFFICIENCIES), ("host", self.stack.host, LAUNCHES))
        return {section: {key: getattr(part, key) for key in keys} for section, part, keys in parts}


@frozen
class _Measured:
    """A predicted record: log of measured over predicted time at the parent's factors, and its source."""

    found: PredictedRecord
    measured_s: float
    source: str

    def log_ratio(self, log_factors: Vector) -> float:
        """log(measured / predicted) under the factors."""
        resolved = self.found.sized.resolved
        stack = _with_factors(resolved.job.stack, log_factors)
        device = device_of(resolved.job.server.accelerator, stack, resolved.job.precision, resolved.efficiency)
        job = replace(resolved.job, stack=stack, device=device)
        return float(np.log(self.measured_s / timeline(job, self.found.sized.layouts).step_s[0]))


def calibrate(records: Iterable[Record], parent: str, name: str) -> Calibration:
    """Fit the parent stack's factors to the records that have a time.

    Parameters
    ----------
    parent : name of a shipped stack, which all records are predicted under
    name : of the new stack

    Raises
    ------
    InputError : unknown parent; fewer than LEAST_RECORDS records with a time
    """
    base = load_stack(parent)
    rows, skipped = _measured(records, parent)
    if len(rows) < LEAST_RECORDS:
        reasons = "; ".join(f"{record}: {reason}" for record, reason in skipped[:3])
        hint = f"{reasons}; {_NEEDED}" if reasons else _NEEDED
        raise InputError(Problem(f"{len(rows)} records with a time are too few to fit {parent}", hint=hint))
    fit = _fit(rows)
    left_out = _left_out(fit, [row.source for row in rows])
    spread = float(np.quantile(np.abs(np.expm1(fit.residuals if left_out is None else left_out)), COVERED))
    fitted = msgspec.structs.replace(
        _with_factors(base, fit.log_factors), name=name, parent=parent, uncertainty=round(max(spread, NOISE), 3)
    )
    return Calibration(
        stack=fitted,
        parent=parent,
        factors=_factors(fit),
        used=tuple(row.found.record.id for row in rows),
        skipped=skipped,
        before=_median_error(np.array([row.log_ratio(np.zeros(len(FACTORS))) for row in rows])),
        after=_median_error(fit.residuals),
        left_out=None if left_out is None else _median_error(left_out),
    )


def _measured(records: Iterable[Record], parent: str) -> tuple[list[_Measured], tuple[tuple[str, str], ...]]:
    rows, skipped = [], []
    registry = RecordRegistry()
    for record in records:
        if record.serves:
            skipped.append((record.id, "a record of inference: calibrate fits training stacks"))
            continue
        try:
            found = predict_record(msgspec.structs.replace(record, stack=parent), registry)
        except InputError as error:
            skipped.append((record.id, reason_of(error)))
            continue
        times = list(step_time(found))
        if times:
            rows.append(_Measured(found, float(times[0].measured), record.title))
        else:
            skipped.append((record.id, "no time measured"))
    return rows, tuple(skipped)


def _with_factors(stack: Stack, log_factors: Vector) -> Stack:
    """The stack with its efficiencies and launch times multiplied; efficiencies stay below what a file may say."""
    by_name = dict(zip(FACTORS, np.exp(log_factors).tolist(), strict=True))
    efficiency, host = stack.efficiency, stack.host
    scaled = {name: min(getattr(efficiency, name) * by_name[name], LARGEST_FACTOR) for name in EFFICIENCIES}
    return msgspec.structs.replace(
        stack,
        efficiency=msgspec.structs.replace(efficiency, **scaled),
        host=msgspec.structs.replace(host, **{name: getattr(host, name) * by_name["launches"] for name in LAUNCHES}),
    )


@frozen
class _Fit:
    """The linear model around the fitted factors, and the fit.

    linear : what the factors must explain, seen from the parent (records,); slopes (records, factors)
    weights (records,); log_factors (factors,); precision of the posterior (factors, factors); residuals (records,)
    """

    linear: Vector
    slopes: Vector
    weights: Vector
    log_factors: Vector
    precision: Vector
    residuals: Vector


def _factors(fit: _Fit) -> tuple[Factor, ...]:
    deviations = np.sqrt(np.diag(np.linalg.inv(fit.precision)))
    return tuple(
        Factor(name, float(np.exp(value)), float(np.expm1(deviation)))
        for name, value, deviation in zip(FACTORS, fit.log_factors, deviations, strict=True)
    )


def _fit(rows: Sequence[_Measured]) -> _Fit:
    counts = Counter(row.source for row in rows)
    # A source with many rows says more than one with few, but not in proportion: its rows err together.
    weights = np.array([counts[row.source] ** -0.5 for row in rows])
    log_factors = np.zeros(len(FACTORS))
    for _ in range(ROUNDS):
        ratios = np.array([row.log_ratio(log_factors) for row in rows])
        slopes = _slopes(rows, log_factors, ratios)
        linear = ratios + slopes @ log_factors
        log_factors, precision = _robust(slopes, linear, weights)
    residuals = np.array([row.log_ratio(log_factors) for row in rows])
    return _Fit(linear, slopes, weights, log_factors, precision, residuals)


def _slopes(rows: Sequence[_Measured], log_factors: Vector, ratios: Vector) -> Vector:
    """-d log(measured / predicted) / d log factor by finite differences, shape (records, factors)."""
    columns = []
    for place in range(len(FACTORS)):
        moved = log_factors.copy()
        moved[place] -= STEP
        columns.append((np.array([row.log_ratio(moved) for row in rows]) - ratios) / STEP)
    return np.stack(columns, axis=1)


def _robust(slopes: Vector, linear: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """Posterior mode and precision under Student-t noise, by reweighting."""
    prior = np.eye(len(FACTORS)) / PRIOR_SPREAD**2
    log_factors: Vector = np.zeros(len(FACTORS))
    precision: Vector = prior
    for _ in range(REWEIGHTS):
        residual = linear - slopes @ log_factors
        trust = weights / NOISE**2 / (1.0 + (residual / NOISE) ** 2 / FREEDOM)
        precision = (slopes * trust[:, None]).T @ slopes + prior
        log_factors = np.asarray(np.linalg.solve(precision, (slopes * trust[:, None]).T @ linear))
    return log_factors, precision


def _left_out(fit: _Fit, sources: Sequence[str]) -> Vector | None:
    """Log residuals of rows that their fit has not seen: by source where there are several, else in five parts.

    On the linear model around the fit of all rows. None where there are too few rows to leave any out.
    """
    count = len(sources)
    if count <= FOLDS:
        return None
    parts = np.array(sources if len(set(sources)) > 1 else [str(place % FOLDS) for place in range(count)])
    found = np.zeros(count)
    for part in np.unique(parts):
        own = parts == part
        log_factors, _ = _robust(fit.slopes[~own], fit.linear[~own], fit.weights[~own])
        found[own] = fit.linear[own] - fit.slopes[own] @ log_factors
    return found


def _median_error(log_ratios: Vector) -> float:
    """Median of |predicted / measured - 1| [-]."""
    return float(np.median(np.abs(np.expm1(-log_ratios))))
