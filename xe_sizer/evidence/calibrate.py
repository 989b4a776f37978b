"""A stack fitted to measurements of one's own cluster: a few named factors, held near those of the parent.

The factors multiply what the parent stack says of a kind of work. They are found in the logarithm of the step time on
numerical derivatives, with the layout of every record held fixed (`robust`). What the records do not determine
stays where the parent has it, and what few determine moves there in part; a record that is far off, such as one of
another software version, counts little. The parent is the stack that the records name, and the range of the new one
follows from runs that a fit had not seen. Live tensors get one factor, from measured peaks, shrunk in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import (
    PredictedRecord,
    predict_record,
    predict_records,
    predicted_peak_bytes,
    reason_of,
    step_time,
)
from xe_sizer.evidence.records import Measured, measured_oom, measured_peak_bytes
from xe_sizer.evidence.statistics import cluster_weights, source_weights, weighted_quantile
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software.release import split_release
from xe_sizer.software.stack import MOST_UNCERTAINTY
from xe_sizer.software.uncertainty import MemoryChance, Spread
from xe_sizer.training.device import build_device
from xe_sizer.training.memory import at_level
from xe_sizer.training.step_time import timeline

if TYPE_CHECKING:
    from pathlib import Path

    from xe_sizer.evidence.records import Record
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.resolved import ResolvedTraining

# Memory of published runs: peaks and ends of it, and how far a probability to fit can be believed.

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
BINS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Peak(Immutable):
    """Memory of a published run on a known number of GPUs.

    ratio : measured peak over the cautious prediction in the same metric, None where none was measured [-]
    room : memory of the card over the cautious peak [-]; fits : whether it ran, None where nobody says
    guessed : lengths, batch or micro-batch are; said_to_fit : the verdict on it
    counted_too_much : weights, gradients and states, which are no estimate, are alone more than the card has
    """

    source: str
    ratio: float | None
    room: float
    fits: bool | None
    guessed: bool = False
    said_to_fit: bool = True
    counted_too_much: bool = False


class Reliability(Immutable):
    """Runs that were given a probability by other publications: its mean, and the share of them that ran."""

    low: float
    high: float
    runs: int
    publications: int
    out_of_memory: int
    said: float
    ran: float


def collect_peaks(records: Iterable[Record]) -> Iterator[Peak]:
    """Collect the memory of every run of training with a prediction and a known number of GPUs."""
    for found in predict_records(record for record in records if not record.serves):
        if isinstance(found, PredictedRecord) and found.sized.resolved.gpus is not None:
            yield _peak(found)


def _peak(found: PredictedRecord) -> Peak:
    sized, measured = found.sized, measured_peak_bytes(found.record.measured)
    ratio = None
    if measured is not None:
        conversion, metric = measured
        ratio = conversion.value / predicted_peak_bytes(found.where_measured(sized.ledger), metric)
    oom = measured_oom(found.record.measured)
    room, ran = found.judged.usable_bytes / found.judged.peak_bytes, None if oom is None else not oom
    counted = found.judged.counted_too_much
    return Peak(found.record.title, ratio, room, ran, found.memory_guessed, found.fits, counted)


def fit_spread(peaks: Iterable[Peak]) -> tuple[Spread, int, int]:
    """Quantiles of measured over predicted peaks, publications weighted alike; how many runs and publications."""
    known = [peak for peak in peaks if peak.ratio is not None and not peak.guessed]
    sources = [peak.source for peak in known]
    logs, weights = np.array([math.log(peak.ratio or 1.0) for peak in known]), source_weights(sources)
    low, middle, high = (math.exp(weighted_quantile(logs, weights, share)) for share in (0.1, 0.5, 0.9))
    return Spread(low, high, middle), len(known), len(set(sources))


# What the parameters of MemoryChance may be, and the share of published runs that ran whatever they are said to need:
# some of those that are said to need several times the card, since they did not do what their description says. Without
# that share they would move the centre and widen the spread. It is fitted and then left: a scenario says what it does.
SPREADS = (0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)  # the least is chosen: half of measured peaks lie farther off
# Nothing is surer than 98 %: who publishes tells of runs that worked, and a wrong "fits" costs most.
LEAST, WIDENINGS = (0.02, 0.03), (1.0, 1.5, 2.0, 3.0)
CENTRES = (0.9, 0.925, 0.95, 0.975, 1.0, 1.025, 1.05, 1.075, 1.1, 1.15, 1.2, 1.25)
ODD_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
ALIKE = 0.2  # chosen: correlation of a publication's runs. At 1 reports of one failure, which are none of a run, decide
CERTAIN = 0.005  # no single run may say more against a distribution than one of this probability [-]


class MemoryFits:
    """Every distribution that MemoryChance could be, and how badly each publication is said by it.

    The loss of a publication is the sum of -w ln P(what became of the run), so that one can be left out by subtraction.
    """

    def __init__(self, peaks: Iterable[Peak]) -> None:
        known = [peak for peak in peaks if peak.fits is not None]
        self.sources = sorted({peak.source for peak in known})
        weights = cluster_weights([peak.source for peak in known], ALIKE)
        places = np.array([self.sources.index(peak.source) for peak in known])
        ended = np.array([not peak.fits for peak in known])
        ratio, guessed = np.array([1.0 / peak.room for peak in known]), np.array([peak.guessed for peak in known])
        chances = [MemoryChance(*one) for one in product(SPREADS, LEAST, WIDENINGS, CENTRES)]
        self.tried = list(product(chances, ODD_SHARES))
        losses = []
        for one in chances:
            said = one.out_of_memory(ratio, guessed)
            for odd in ODD_SHARES:
                right = np.where(ended, (1.0 - odd) * said, 1.0 - (1.0 - odd) * said)
                losses.append(np.bincount(places, -np.log(np.clip(right, CERTAIN, 1.0)) * weights, len(self.sources)))
        self.losses = np.array(losses)

    @property
    def best(self) -> MemoryChance:
        """The most likely one."""
        return self._likeliest[0]

    @property
    def odd(self) -> float:
        """Share of the runs that ran whatever they are said to need [-]."""
        return self._likeliest[1]

    @property
    def _likeliest(self) -> tuple[MemoryChance, float]:
        return self.tried[int(self.losses.sum(axis=1).argmin())]

    def without(self, source: str) -> MemoryChance:
        """The most likely one by the other publications; by all where the source is none of them."""
        total = self.losses.sum(axis=1)
        if source in self.sources:
            total = total - self.losses[:, self.sources.index(source)]
        return self.tried[int(total.argmin())][0]


def left_out(peaks: Sequence[Peak]) -> dict[str, MemoryChance]:
    """For each publication the distribution that the others give."""
    fits = MemoryFits(peaks)
    return {source: fits.without(source) for source in {peak.source for peak in peaks}}


def spreads_left_out(peaks: Sequence[Peak]) -> dict[str, Spread]:
    """For each publication the distribution of peaks that the others give."""
    return {
        source: fit_spread(peak for peak in peaks if peak.source != source)[0]
        for source in {peak.source for peak in peaks}
    }


class Brier(Immutable):
    """Mean squares of probability less outcome, publications weighted alike and each judged by the others [-].

    yes_or_no : of the plain verdict; of_peaks : of the spread of measured peaks; chance : of `MemoryChance`
    """

    yes_or_no: float
    of_peaks: float
    chance: float


def brier(peaks: Iterable[Peak], chances: Mapping[str, MemoryChance], spreads: Mapping[str, Spread]) -> Brier:
    """Score each way to say whether a run fits.

        B = sum of w (said - fits)^2 / sum of w

    Source: G. W. Brier, Monthly Weather Review 78 (1950) 1-3.
    """
    known = [peak for peak in peaks if peak.fits is not None]
    weights, ran = source_weights([peak.source for peak in known]), np.array([bool(peak.fits) for peak in known])
    centred = {name: Spread(low=min(one.low, 1.0), high=max(one.high, 1.0)) for name, one in spreads.items()}
    ways = (
        [float(peak.said_to_fit) for peak in known],
        [float(centred[peak.source].probability(peak.room)) for peak in known],
        [said_to_fit(peak, chances) for peak in known],
    )
    scores = [float(((np.array(said) - ran) ** 2) @ weights / weights.sum()) for said in ways]
    return Brier(*scores)


def said_to_fit(peak: Peak, chances: Mapping[str, MemoryChance]) -> float:
    """The probability that others give to a run to fit; none where what is counted does not [-]."""
    if peak.counted_too_much:
        return 0.0
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


# Robust regression: a prior, noise with strays, and what it says of runs that it has not seen.
#
#     log measured = log predicted(factors) + noise,   log factor ~ N(0, PRIOR_SPREAD^2),   noise ~ Student-t
#
# Source: Gelman et al., Bayesian Data Analysis, chapters 3, 14 and 17 (normal model with unknown variance, regression
# with an informative prior, robust inference).

Vector = NDArray[np.float64]
PRIOR_SPREAD = 0.35  # assumed: a factor is within 0.7 to 1.4 of the parent's in two cases of three
NOISE = 0.08  # assumed, relative: what two runs of the same job differ by with other nodes and versions
FREEDOM = 4.0  # assumed, degrees of freedom of the noise: one record in ten may be off by far
REWEIGHTS = 30  # chosen: rounds after which the weights no longer move
PARENT_RUNS = 1.0  # chosen: how many runs the parent's published range counts as beside one's own
STRAYS = 0.1  # assumed: share of the runs that may be off by any amount
FARTHEST = 3.0  # chosen: standard deviations, by the median, beyond which a run is such a stray
TAIL = 1.2815515655446004  # counted: 90 % quantile of the normal distribution; a tenth lies on each side of a range
NORMAL_SPREADS = 1.4826  # counted: standard deviations of a normal distribution in its median absolute deviation


def robust(slopes: Vector, linear: Vector, weights: Vector) -> tuple[Vector, Vector]:
    """Posterior mode and precision of the log factors under Student-t noise, by reweighting.

    Parameters
    ----------
    slopes : -d log(measured / predicted) / d log factor, shape (run, factor) [-]
    linear : log(measured / predicted) that the factors must explain, shape (run,) [-]
    weights : of the runs, shape (run,) [-]

    Returns
    -------
    log factors, shape (factor,) [-]; their precision, shape (factor, factor) [-]
    """
    prior = np.eye(slopes.shape[1]) / PRIOR_SPREAD**2
    log_factors: Vector = np.zeros(slopes.shape[1])
    precision: Vector = prior
    for _ in range(REWEIGHTS):
        residual = linear - slopes @ log_factors
        trust = weights / NOISE**2 / (1.0 + (residual / NOISE) ** 2 / FREEDOM)
        precision = (slopes * trust[:, None]).T @ slopes + prior
        log_factors = np.asarray(np.linalg.solve(precision, (slopes * trust[:, None]).T @ linear))
    return log_factors, precision


def left_out_residuals(slopes: Vector, linear: Vector, weights: Vector, parts: Sequence[str]) -> Vector:
    """Log residuals of runs by fits that have not seen their part, shape (run,) [-].

    parts : which runs are left out together, by a name for each, shape (run,)

    A part that is all there is meets the parent's own factors.
    """
    names, found = np.array(parts), np.zeros(len(parts))
    for part in dict.fromkeys(parts):
        own = names == part
        log_factors, _ = robust(slopes[~own], linear[~own], weights[~own])
        found[own] = linear[own] - slopes[own] @ log_factors
    return found


def error_of_new_runs(residuals: Vector, parts: Sequence[str], parent_spread: float) -> float:
    """Log error that four in five new runs should stay below.

        error = t(0.9, n) s,   s^2 = (PARENT_RUNS sigma^2 + sum of r^2) / n,   n = PARENT_RUNS + parts

    with a part's mean square r^2 of the residuals of fits that had not seen it, and the parent's published spread
    sigma: with few runs that rules, and t(0.9, n) is wide; with many both lose their weight. At most a tenth of the
    parts counts as strays: those beyond three standard deviations are taken to lie there. Never below NOISE.

    Parameters
    ----------
    residuals : of runs that were left out, shape (run,) [-]
    parts : which of them were left out together, shape (run,)
    parent_spread : standard deviation of log(measured / predicted) of the parent's published runs [-]

    Returns
    -------
    float [-]

    Source: posterior predictive distribution of a normal model with a scaled inverse chi-square prior (Bayesian Data
    Analysis, section 3.2). Simulated runs lie inside as often as it says or more often (tests/evidence).
    """
    names, squares = np.array(parts), residuals**2
    sizes = np.sort([math.sqrt(squares[names == part].mean()) for part in dict.fromkeys(parts)])
    usual = float(sizes[math.ceil((1.0 - STRAYS) * len(sizes)) - 1])
    kept = np.minimum(sizes, max(usual, FARTHEST * NORMAL_SPREADS * float(np.median(sizes))))
    runs = PARENT_RUNS + len(sizes)
    spread = math.sqrt((PARENT_RUNS * parent_spread**2 + float(kept @ kept)) / runs)
    return max(student_tail(runs) * spread, math.log1p(NOISE))


def student_tail(freedom: float) -> float:
    """90 % quantile of Student's t distribution.

        t = z + (z^3 + z) / (4 n) + (5 z^5 + 16 z^3 + 3 z) / (96 n^2) + (3 z^7 + 19 z^5 + 17 z^3 - 15 z) / (384 n^3)

    Within 0.3 % from two degrees of freedom on.

    freedom : degrees of freedom n, 2 or more [-]

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = TAIL
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


# The fit of a stack.

EFFICIENCIES = ("matmul", "attention", "memory_bound", "collectives")
LAUNCHES = ("forward_launch_us", "backward_launch_us", "micro_batch_overhead_ms", "step_overhead_ms")
FACTORS = (*EFFICIENCIES, "launches")
STEP = 0.2  # chosen: of a derivative, in log
ROUNDS = 3  # chosen: linearisations, after which the factors no longer move
LEAST_RECORDS = 1  # chosen: the prior says how little one run says
LARGEST_FACTOR = 1.5  # counted: what a stack file may say


class Factor(Immutable):
    """How much faster (efficiencies) or costlier (launches) than the parent's, and its relative standard error."""

    name: str
    value: float
    error: float


_NEEDED = "a record needs a time or a rate under measured: step_time_s, samples_per_s or tokens_per_s_per_gpu"


# Measured over predicted peaks of memory of published runs with known lengths and layout: standard deviations of the
# logarithm between publications, and between runs of one (medians of 26; scripts/build_residuals.py has the records).
BETWEEN, WITHIN = 0.2, 0.1
UNLIKE = 0.25  # fitted: `alike`
LEAST_SCALE = 0.1  # chosen: a peak below that of contexts alone is none of the job's


def shrinkage(runs: int) -> float:
    """What runs of one's own say, as a share of their mean deviation [-].

        w = k s_b^2 / (k s_b^2 + s_w^2)

    with k different `runs`, the spread s_b between sources and s_w between runs of one.

    Source: mean of a normal distribution with a normal prior around what was predicted (Bayesian Data Analysis,
    section 2.5).
    """
    return runs * BETWEEN**2 / (runs * BETWEEN**2 + WITHIN**2)


class MemoryFit(Immutable):
    """Measured peaks of memory, and what they say of live tensors.

    scale : of live tensors, shrunk by `weight`; runs : with a peak; parts : how many of them are different
    before, left_out : median errors of peaks by the parent, and by fits that have not seen the run [-]
    """

    scale: float
    weight: float
    runs: int
    parts: int
    before: float
    left_out: float


def fit_memory(log_scales: Sequence[float], parts: Sequence[str]) -> MemoryFit | None:
    """Fit the factor on live tensors to log(measured / predicted) of runs; None without any.

        scale = exp(w median over parts of their median)    w = `shrinkage` of the number of parts

    parts : which runs are left out together, by a name for each
    """
    names = list(dict.fromkeys(parts))
    if not names:
        return None
    logs, at = np.array(log_scales), np.array(parts)
    middles = np.array([np.median(logs[at == name]) for name in names])
    weight, alone = shrinkage(len(names)), np.zeros(len(logs))
    for place, name in enumerate(names):
        others = np.delete(middles, place)
        alone[at == name] = shrinkage(others.size) * float(np.median(others)) if others.size else 0.0
    return MemoryFit(
        scale=math.exp(weight * float(np.median(middles))),
        weight=weight,
        runs=len(logs),
        parts=len(names),
        before=_median_error(logs),
        left_out=_median_error(logs - alone),
    )


class Calibration(Immutable):
    """A fitted stack, what it was fitted to, and median absolute errors [-].

    parent : the stack that the factors start from, with its release
    before : of the parent; after : of the fit on its own records; left_out : of fits that have not seen the record
    used, skipped : ids of records that were fitted, and reasons for the others
    parts : how many of the records say something of their own: publications, or runs of different jobs
    memory : what peaks of memory say; None where no record has one
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
    memory: MemoryFit | None = None

    @property
    def fitted_keys(self) -> dict[str, dict[str, float]]:
        """Section of a stack file -> key -> value, of all that the factors multiply."""
        parts = (
            ("efficiency", self.stack.efficiency, EFFICIENCIES),
            ("host", self.stack.host, LAUNCHES),
            *((("memory", self.stack.memory, ("tensor_scale",)),) if self.memory else ()),
        )
        return {section: {key: getattr(part, key) for key in keys} for section, part, keys in parts}


class _Measured(Immutable):
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
        device = build_device(job.server.accelerator, stack, job.method, job.precision, resolved.efficiency)
        job = replace(job, stack=stack, device=device)
        return float(np.log(self.measured_s / timeline(job, self.found.sized.layouts).step_s[0]))


def calibrate(
    records: Iterable[Record],
    parent: str | None,
    name: str,
    like: ResolvedTraining | None = None,
    profiles: Sequence[Path] = (),
) -> Calibration:
    """Fit a stack's factors to the records that have a time.

    Parameters
    ----------
    parent : a shipped stack, perhaps with a release, which all records are predicted under; None: the one that most of
        them name
    name : of the new stack
    like : the job that the stack is for, which runs alike say most of; None: all say as much
    profiles : folders of the user's own, before the catalogue

    Raises
    ------
    InputError : unknown parent; fewer than LEAST_RECORDS records with a time
    """
    parent = None if parent is None else _shipped(parent)
    timed, peaked, skipped = _measured(records, parent, profiles)
    rows, others = _of_one_stack(timed, parent)
    skipped += others
    if len(rows) < LEAST_RECORDS:
        reasons = "; ".join(f"{record}: {reason}" for record, reason in skipped[:3])
        hint = f"{reasons}; {_NEEDED}" if reasons else _NEEDED
        raise InputError(Problem(f"{len(rows)} records with a time are too few to fit a stack", hint=hint))
    start = parent or _most_common(row.full_name for row in rows)
    fit, parts = _fit(rows, like), _parts(rows)
    mine = [row for row in peaked if row.stack_name == rows[0].stack_name]
    memory = fit_memory([_log_scale(row) for row in mine], _parts(mine))
    unseen = left_out_residuals(fit.slopes, fit.linear, fit.weights, parts)
    # The published range of the parent leaves a tenth outside on each side.
    published = [np.log(span.high / span.low) / (2.0 * TAIL) for span in (row.found.sized.uncertainty for row in rows)]
    error = error_of_new_runs(unseen, parts, float(np.median(published)))
    if error > np.log1p(MOST_UNCERTAINTY):
        raise InputError(_contradiction(error, [row.found.record.id for row in rows], unseen))
    fitted = msgspec.structs.replace(
        _with_factors(load_stack(start), fit.log_factors),
        name=name,
        parent=start,
        uncertainty=round(float(np.expm1(error)), 3),
    )
    if memory:
        scaled = msgspec.structs.replace(fitted.memory, tensor_scale=fitted.memory.tensor_scale * memory.scale)
        fitted = msgspec.structs.replace(fitted, memory=scaled)
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
        memory=memory,
    )


def _contradiction(error: float, records: Sequence[str], unseen: Vector) -> Problem:
    """What is wrong with runs of which none says how long the others take, by those that are the furthest off."""
    ranked = sorted(zip(np.exp(unseen), records, strict=True), key=lambda each: -abs(np.log(each[0])))
    said = ((f"{times:,.0f}" if times >= 10 else f"{times:.2g}", record) for times, record in ranked[:3])
    told = [f"{record} took {times} times what the others let expect" for times, record in said]
    message = f"the runs contradict one another: new ones would lie within a factor of {np.exp(error):,.0f}"
    look = "look at their units, numbers of GPUs and stacks, and leave out what differs"
    return Problem(message, hint=f"{'; '.join(told)}: {look}")


def _shipped(parent: str) -> str:
    """Name and release of a shipped stack. Raises InputError: unknown, or a file of one's own."""
    stack = load_stack(parent)
    if stack.name not in BUILT_IN.names("stack"):
        raise InputError(Problem(f"{parent} is no shipped stack", hint="fit one that ships, and add to its file"))
    return _full_name(stack)


def _full_name(stack: Stack) -> str:
    return stack.name if stack.release is None else f"{stack.name}@{stack.release}"


def _measured(
    records: Iterable[Record], parent: str | None, profiles: Sequence[Path]
) -> tuple[list[_Measured], list[_Measured], list[tuple[str, str]]]:
    """Records with a time, those with a peak of memory (whose time may be none), and the others with the reason."""
    rows, peaked, skipped = [], [], []
    registry = RecordRegistry(profiles)
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
        if measured_peak_bytes(record.measured) is not None and not found.memory_guessed:
            peaked.append(_Measured(found, float(times[0].measured) if times else math.nan))
        if not times:
            skipped.append((record.id, "no time measured"))
        elif found.guessed:
            skipped.append((record.id, "lengths, batch or the number of GPUs are not stated"))
        else:
            rows.append(_Measured(found, float(times[0].measured)))
    return rows, peaked, skipped


def _log_scale(row: _Measured) -> float:
    """By what the live tensors of a run would have to be larger to show its measured peak, in log.

    scale = (measured - predicted) / tensors + 1
    """
    sized, measured = row.found.sized, measured_peak_bytes(row.found.record.measured)
    assert measured is not None
    conversion, metric = measured
    ledger = row.found.where_measured(at_level(sized.ledger, sized.choice.evaluation, "typical"))
    tensors = float(ledger.tensor_peak_bytes[0])
    return math.log(max((conversion.value - predicted_peak_bytes(ledger, metric)) / tensors + 1.0, LEAST_SCALE))


def _under(record: Record, parent: str | None) -> Record:
    """The record as one of the parent, in its release where it has one."""
    if parent is None:
        return record
    name, release = split_release(parent)
    framework = record.framework if release is None else f"{name}@{release}"
    return msgspec.structs.replace(record, stack=name, framework=framework)


def _of_one_stack(rows: Sequence[_Measured], parent: str | None) -> tuple[list[_Measured], list[tuple[str, str]]]:
    """Runs of the parent, or of the stack that most of the records stand for; the others with the reason."""
    if not rows:
        return [], []
    name = split_release(parent)[0] if parent else _most_common(row.stack_name for row in rows)
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


class _Fit(Immutable):
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


def alike(row: _Measured, like: ResolvedTraining) -> float:
    """Weight of a run by what it has in common with a job: a quarter for each of model, length and layout that differs.

    Source: of two to eight runs of a publication fitted and its others predicted, with weights of 1, 0.5, 0.25 and 0.1,
    a quarter does best: the median error falls from 9.6 to 9.1 % with four runs, and one in ten from 40 to 38 %.
    """
    job, wanted = row.found.sized.resolved.job, like.job
    layouts, fixed = row.found.sized.layouts, like.fixed
    same = (
        job.model.name == wanted.model.name,
        job.seq_len == wanted.seq_len,
        all(int(getattr(layouts, name)[0]) == size for name, size in fixed.items()),
    )
    return UNLIKE ** same.count(False)


def _fit(rows: Sequence[_Measured], like: ResolvedTraining | None) -> _Fit:
    counts = Counter(row.source for row in rows)
    # A source with many rows says more than one with few, but not in proportion: its rows err together.
    weights = np.array([counts[row.source] ** -0.5 for row in rows])
    if like is not None:
        nearness = np.array([alike(row, like) for row in rows])
        weights = weights * nearness / nearness.max()
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
