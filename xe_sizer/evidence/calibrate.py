"""A stack fitted to measurements of one's own cluster: a few named factors, held near those of the parent.

The factors multiply what the parent stack says of a kind of work. They are found in the logarithm of the step time on
numerical derivatives, with the layout of every record held fixed (`robust_fit`). What the records do not determine
stays where the parent has it; a record that is far off, such as one of another software version, counts little. The
parent is the stack that the records name, and the range of the new one follows from runs that a fit had not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.flags import RecordRegistry
from xe_sizer.evidence.prediction import reason_of
from xe_sizer.evidence.record_parts import Measured
from xe_sizer.evidence.robust_fit import TAIL, error_of_new_runs, left_out_residuals, robust
from xe_sizer.evidence.training import predict_record, step_time
from xe_sizer.frozen import frozen
from xe_sizer.profiles.inherited import of_release
from xe_sizer.software.stack import load_stack, stack_names
from xe_sizer.training.device import device_of
from xe_sizer.training.step import timeline

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.evidence.robust_fit import Vector
    from xe_sizer.evidence.training import PredictedRecord
    from xe_sizer.software.stack import Stack

EFFICIENCIES = ("matmul", "attention", "memory_bound", "collectives")
LAUNCHES = ("forward_launch_us", "backward_launch_us", "micro_batch_overhead_ms", "step_overhead_ms")
FACTORS = (*EFFICIENCIES, "launches")
STEP = 0.2  # chosen: of a derivative, in log
ROUNDS = 3  # chosen: linearisations, after which the factors no longer move
LEAST_RECORDS = 2  # chosen
LARGEST_FACTOR = 1.5  # counted: what a stack file may say


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

    parent : the stack that the factors start from, with its release
    before : of the parent; after : of the fit on its own records; left_out : of fits that have not seen the record
    used, skipped : ids of records that were fitted, and reasons for the others
    parts : how many of the records say something of their own: publications, or runs of different jobs
    """

    stack: Stack
    parent: str
    factors: tuple[Factor, ...]
    used: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    before: float
    after: float
    left_out: float
    parts: int

    @property
    def fitted_keys(self) -> dict[str, dict[str, float]]:
        """Section of a stack file -> key -> value, of all that the factors multiply."""
        parts = (("efficiency", self.stack.efficiency, EFFICIENCIES), ("host", self.stack.host, LAUNCHES))
        return {section: {key: getattr(part, key) for key in keys} for section, part, keys in parts}


@frozen
class _Measured:
    """A predicted record that has a time, the stack and release that it was predicted with, and its source."""

    found: PredictedRecord
    measured_s: float

    @property
    def source(self) -> str:
        return self.found.record.title

    @property
    def full_name(self) -> str:
        return _full_name(self.found.sized.resolved.job.stack)

    @property
    def stack_name(self) -> str:
        return self.found.sized.resolved.job.stack.name

    @property
    def conditions(self) -> str:
        """The record without what was measured and what it is called: repeats of one run have the same."""
        told = {"id": "", "source": None, "notes": None, "inferred": None, "measured": Measured()}
        plain = msgspec.structs.replace(self.found.record, **told)
        return msgspec.json.encode(plain).decode()

    def log_ratio(self, log_factors: Vector) -> float:
        """log(measured / predicted) under the factors."""
        resolved = self.found.sized.resolved
        stack = _with_factors(resolved.job.stack, log_factors)
        job = resolved.job
        device = device_of(job.server.accelerator, stack, job.method, job.precision, resolved.efficiency)
        job = replace(job, stack=stack, device=device)
        return float(np.log(self.measured_s / timeline(job, self.found.sized.layouts).step_s[0]))


def calibrate(records: Iterable[Record], parent: str | None, name: str) -> Calibration:
    """Fit a stack's factors to the records that have a time.

    Parameters
    ----------
    parent : a shipped stack, perhaps with a release, which all records are predicted under; None: the one that most of
        them name
    name : of the new stack

    Raises
    ------
    InputError : unknown parent; fewer than LEAST_RECORDS records with a time
    """
    parent = None if parent is None else _shipped(parent)
    timed, skipped = _measured(records, parent)
    rows, others = _of_one_stack(timed, parent)
    skipped += others
    if len(rows) < LEAST_RECORDS:
        reasons = "; ".join(f"{record}: {reason}" for record, reason in skipped[:3])
        hint = f"{reasons}; {_NEEDED}" if reasons else _NEEDED
        raise InputError(Problem(f"{len(rows)} records with a time are too few to fit a stack", hint=hint))
    start = parent or _most_common(row.full_name for row in rows)
    fit, parts = _fit(rows), _parts(rows)
    unseen = left_out_residuals(fit.slopes, fit.linear, fit.weights, parts)
    error = error_of_new_runs(unseen, parts, _published_spread(rows))
    fitted = msgspec.structs.replace(
        _with_factors(load_stack(start), fit.log_factors),
        name=name,
        parent=start,
        uncertainty=round(float(np.expm1(error)), 3),
    )
    return Calibration(
        stack=fitted,
        parent=start,
        factors=_factors(fit),
        used=tuple(row.found.record.id for row in rows),
        skipped=tuple(skipped),
        before=_median_error(np.array([row.log_ratio(np.zeros(len(FACTORS))) for row in rows])),
        after=_median_error(fit.residuals),
        left_out=_median_error(unseen),
        parts=len(set(parts)),
    )


def _shipped(parent: str) -> str:
    """Name and release of a shipped stack. Raises InputError: unknown, or a file of one's own."""
    stack = load_stack(parent)
    if stack.name not in stack_names():
        raise InputError(Problem(f"{parent} is no shipped stack", hint="fit one that ships, and add to its file"))
    return _full_name(stack)


def _full_name(stack: Stack) -> str:
    return stack.name if stack.release is None else f"{stack.name}@{stack.release}"


def _measured(records: Iterable[Record], parent: str | None) -> tuple[list[_Measured], list[tuple[str, str]]]:
    rows, skipped = [], []
    registry = RecordRegistry()
    for record in records:
        if record.serves:
            skipped.append((record.id, "a record of inference: calibrate fits training stacks"))
            continue
        try:
            found = predict_record(_under(record, parent), registry)
        except InputError as error:
            skipped.append((record.id, reason_of(error)))
            continue
        times = list(step_time(found))
        if not times:
            skipped.append((record.id, "no time measured"))
        elif found.guessed:
            skipped.append((record.id, "lengths, batch or the number of GPUs are not stated"))
        else:
            rows.append(_Measured(found, float(times[0].measured)))
    return rows, skipped


def _under(record: Record, parent: str | None) -> Record:
    """The record as one of the parent, in its release where it has one."""
    if parent is None:
        return record
    name, release = of_release(parent)
    framework = record.framework if release is None else f"{name}@{release}"
    return msgspec.structs.replace(record, stack=name, framework=framework)


def _of_one_stack(rows: Sequence[_Measured], parent: str | None) -> tuple[list[_Measured], list[tuple[str, str]]]:
    """Runs of the parent, or of the stack that most of the records stand for; the others with the reason."""
    if not rows:
        return [], []
    name = of_release(parent)[0] if parent else _most_common(row.stack_name for row in rows)
    others = [(row.found.record.id, row.stack_name) for row in rows if row.stack_name != name]
    return [row for row in rows if row.stack_name == name], [
        (record, f"runs on {stack}, which --stack {stack} fits") for record, stack in others
    ]


def _most_common(names: Iterable[str]) -> str:
    """The first of the names that occur most often."""
    return Counter(names).most_common(1)[0][0]


def _parts(rows: Sequence[_Measured]) -> list[str]:
    """Which runs are left out together: those of a publication where there are several, else repeats of one run."""
    sources = [row.source for row in rows]
    return sources if len(set(sources)) > 1 else [row.conditions for row in rows]


def _published_spread(rows: Sequence[_Measured]) -> float:
    """Standard deviation that the published range of the parent, a tenth outside on each side, stands for [-]."""
    spans = [row.found.sized.uncertainty for row in rows]
    return float(np.median([np.log(span.high / span.low) / (2.0 * TAIL) for span in spans]))


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
        log_factors, precision = robust(slopes, linear, weights)
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


def _median_error(log_ratios: Vector) -> float:
    """Median of |predicted / measured - 1| [-]."""
    return float(np.median(np.abs(np.expm1(-log_ratios))))
