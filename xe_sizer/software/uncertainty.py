"""How far off a time may be: from the residuals of published runs that are like the job.

`residuals/` holds, for groups of published runs, how far measured times lie from predicted ones (written by
scripts/build_residuals.py). Groups are made by conditions on which the error turns, the gravest first: whether lengths
are stated, how kernels are launched. A job's range is that of the runs under all of its conditions. Where these come
from few publications, runs under the first of them make up the number.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.result.common import SPEAKS_FOR_ITSELF, Basis, Bias, Range, strength_of
from xe_sizer.units import whole_percent

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.device import Efficiency

# Certainty: the distribution behind an 80 % range, and how sure a limit is met.
#
# What is off by a factor follows a two-piece log-normal: one spread below the middle and one above it, so that a range
# that reaches further up than down is read as such. Its 10 %, 50 % and 90 % quantiles are the low, middle and high of
# the range.

NINE_TENTHS = 1.2815515655446004
"""The 90 % quantile of the standard normal distribution: inverse of Phi at 0.9 [-]."""
FARTHEST, HALVINGS = 8.0, 60  # chosen: standard deviations between which a score is sought, and steps: to rounding
_erf = np.vectorize(math.erf, otypes=[float])


class Spread(Immutable, eq=True):
    """Factors on an estimate that the real value lies below with 10, 50 and 90 % [-]; low <= middle <= high.

    sure_from : limit over estimate from which a limit may be sure [-]: beyond the range where that was not tested on
    cases like this one
    """

    low: float
    high: float
    middle: float = 1.0
    sure_from: float = 0.0

    def probability(self, ratio: ArrayLike) -> Array:
        """The probability that the real value over its estimate is at most `ratio`.

            P(factor <= r) = Phi(z90 ln(r / middle) / ln(high / middle))   for r >= middle
                           = Phi(z90 ln(r / middle) / ln(middle / low))    for r <  middle

        Where a side has no spread, all of its half lies in the middle.

        Parameters
        ----------
        ratio : array_like of float    limit over estimate [-]

        Returns
        -------
        ndarray of float, shape of `ratio` [-]

        Source: two-piece normal distribution (Fechner 1897; K. F. Wallis, Statistical Science 29, 2014, 106-112) of the
        logarithm, with both halves of equal weight, so that the middle is the median.
        """
        ratio = np.asarray(ratio, dtype=float)
        with np.errstate(divide="ignore"):
            log = np.log(np.maximum(ratio, 0.0) / self.middle)
        up, down = math.log(self.high / self.middle), math.log(self.middle / self.low)
        width = np.where(log >= 0.0, up, down)
        score = np.divide(log, width, out=np.where(log >= 0.0, np.inf, -np.inf), where=width > 0.0)
        return np.asarray(0.5 * (1.0 + _erf(score * (NINE_TENTHS / math.sqrt(2.0)))))

    def quantile(self, probability: float) -> float:
        """The factor that the real value over its estimate is at most with a probability; inverse of `probability`.

            factor = middle exp(Phi^-1(p) / z90 ln(high / middle))   for p >= 0.5, else with ln(middle / low)

        Parameters
        ----------
        probability : between 0 and 1, neither of them [-]

        Returns
        -------
        float [-]

        Source: as `probability`.
        """
        if probability == 0.5:
            return self.middle
        width = math.log(self.high / self.middle if probability > 0.5 else self.middle / self.low)
        return self.middle * math.exp(_score(probability) / NINE_TENTHS * width)


EXACT = Spread(1.0, 1.0)
"""What is known as it is: a number of GPUs."""


def around(error: float) -> Spread:
    """What may be off by a factor of 1 + error either way. error : 80 % of what it is [-]"""
    return Spread(1.0 / (1.0 + error), 1.0 + error)


class MemoryChance(Immutable, eq=True):
    """How likely memory suffices, by the room that the cautious peak of a verdict leaves.

    spread : of the logarithm of need over memory, about the centre [-]
    least : share of the runs that turn out otherwise whatever they are said to need [-]
    widening : factor on the spread where lengths, batch or micro-batch are a guess [-]
    centre : need over memory at which one run in two ends [-]
    """

    spread: float
    least: float
    widening: float = 1.0
    centre: float = 1.0

    @property
    def of_a_guess(self) -> MemoryChance:
        """The chance where lengths, batch or micro-batch are a guess."""
        return replace(self, spread=self.spread * self.widening, widening=1.0)

    def out_of_memory(self, ratio: ArrayLike, guessed: ArrayLike = False) -> Array:
        """The probability that a run goes out of memory.

            P = f + (1 - 2 f) Phi(ln(r / c) / s)

        with f = `least`, c = `centre`, and s = `spread`, times `widening` where something is guessed.

        Parameters
        ----------
        ratio : array_like of float    cautious peak over usable memory [-]
        guessed : array_like of bool    whether lengths, batch or micro-batch are a guess

        Returns
        -------
        ndarray of float, of the arguments' common shape [-]

        Source: f, c, s and the widening are fitted to what became of published runs (scripts/build_residuals.py;
        evidence/calibrate.py says how).
        """
        with np.errstate(divide="ignore"):
            log = np.log(np.asarray(ratio, dtype=float) / self.centre)
        spread = self.spread * np.where(guessed, self.widening, 1.0)
        return np.asarray(self.least + (1.0 - 2.0 * self.least) * _phi(log / spread))

    def probability(self, room: ArrayLike) -> Array:
        """The probability that memory suffices: 1 - P(1 / room), with `room` usable memory over the cautious peak [-].

        Returns
        -------
        ndarray of float, shape of `room` [-]

        Source: as `out_of_memory`.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 - self.out_of_memory(1.0 / np.asarray(room, dtype=float)))

    def quantile(self, probability: float) -> float:
        """The room that suffices with a probability; inverse of `probability` [-].

            room = exp(s Phi^-1((p - f) / (1 - 2 f))) / c

        Infinite where so much is never reached, 0 where less is never possible.
        """
        share = (probability - self.least) / (1.0 - 2.0 * self.least)
        if not 0.0 < share < 1.0:
            return math.inf if share > 0.0 else 0.0
        return math.exp(self.spread * _score(share)) / self.centre


def _score(share: float) -> float:
    """The inverse of Phi, by bisection to rounding; every command asks, and importing `statistics` takes far longer."""
    low, high = -FARTHEST, FARTHEST
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.erf(middle / math.sqrt(2.0)) < 2.0 * share - 1.0 else (low, middle)
    return high


def _phi(score: Array) -> Array:
    """The standard normal distribution [-]."""
    return np.asarray(0.5 * (1.0 + _erf(score / math.sqrt(2.0))))


# Ranges from residuals.

TABLES = Path(__file__).parent / "residuals"
ANY = ""
NOTICEABLE = 0.1  # share of the prediction by which a median must be off to be worth a word
FAR_OFF = 2.0  # times the prediction that one run in ten must have taken to be worth one, whatever the median
UNTESTED = 2.0  # chosen: times as far, in log, as an untested range reaches must a limit lie to be sure
# How far off a new accelerator is of the laws that it borrows, 80 % [-]: sustained shares of the peak went from A100 to
# H100 by 0.89, from H100 to B200 by 0.78, from B200 to B300 and GB200 to GB300 by 1.22, from MI300X to MI325X by 1.19
# (gpu_profiles).
ANNOUNCED_ERROR = 0.25
LEAST_PUBLICATIONS = 4
"""Publications from which a range is called tested; chosen: of fewer, one author's setting makes an end of it."""


class Residuals(Immutable, eq=True):
    """A group's runs, their publications, and the low and high quantiles of log(measured / predicted).

    The quantiles are of its runs, completed with those of wider groups where its publications are few.
    """

    runs: int
    publications: int
    low: float
    high: float


class Observed(Immutable, eq=True):
    """How a group's published runs fared: in number, in publications, and how many lie in the range they were given.

    fastest, median, slowest : 10 %, 50 % and 90 % quantiles of measured / predicted, publications weighted alike [-]
    """

    runs: int
    publications: int
    inside: int
    fastest: float
    median: float
    slowest: float

    @property
    def biased(self) -> bool:
        """Whether the median is off by so much that it is worth a word."""
        return abs(self.median - 1.0) > NOTICEABLE

    @property
    def speaks_for_itself(self) -> bool:
        """Whether the runs come from enough publications to say how the stack does on their kind of job."""
        return self.publications >= SPEAKS_FOR_ITSELF


Group = tuple[str, tuple[str, ...]]  # quantity, and the first conditions of its runs
Table = dict[Group, Residuals]
Seen = dict[tuple[str, str], Observed]  # by stack and kind of job


class Uncertainty(Immutable, eq=True):
    """Factors on an expected time, what they rest on, and whether that is measurements.

    bound : whether the time is one below which nothing comes, and no estimate
    basis : the published runs behind it, None where it rests on none
    sure : factors within which no limit is sure, low and high: those that one run in ten of the same software passed,
    and, where too few publications ran under all of its conditions, those of a range twice as wide
    """

    low: float
    high: float
    evidence: str
    calibrated: bool
    bound: bool = False
    basis: Basis | None = None
    sure: tuple[float, float] = (math.inf, 0.0)

    @property
    def spread(self) -> Spread | None:
        """The distribution of the time; None for a bound, of which nobody can say how far it is kept."""
        return None if self.bound else Spread(self.low, self.high, sure_from=self.sure[1])

    @property
    def of_inverse(self) -> Spread | None:
        """The same of what grows as the quantity falls, such as the price of a token with the rate of tokens."""
        return None if self.bound else Spread(1.0 / self.high, 1.0 / self.low, sure_from=1.0 / self.sure[0])

    def around(self, expected: float) -> Range:
        return Range(low=expected * self.low, expected=expected, high=expected * self.high)


SPEED_OF_LIGHT = Uncertainty(
    1.0, 1.0, "the roofline limit, which no software can beat: a bound, not an estimate", False, bound=True
)


@cache
def published(path: Path) -> Table:
    """A table that ships."""
    rows = msgspec.json.decode(path.read_bytes())
    return {(row.pop("quantity"), tuple(row.pop("conditions"))): Residuals(**row) for row in rows}


@cache
def memory_chance(path: Path) -> MemoryChance:
    """How likely a run ends for want of memory, from a table that ships."""
    return MemoryChance(**msgspec.json.decode(path.read_bytes())["out_of_memory"])


@cache
def memory_spread(path: Path) -> Spread:
    """The distribution of peaks of memory over those that were predicted, from a table that ships.

    Its middle is the prediction.
    """
    table = msgspec.json.decode(path.read_bytes())
    return Spread(low=table["low"], high=table["high"])


@cache
def seen(path: Path) -> Seen:
    """A table that ships of how published runs fared."""
    return {(row.pop("stack"), row.pop("kind")): Observed(**row) for row in msgspec.json.decode(path.read_bytes())}


def of_kind(table: Seen, kind: str) -> Seen:
    """The runs of one kind alone, for a question to which runs of another kind say nothing."""
    mine = {group: found for group, found in table.items() if group[1] == kind}
    return mine | ({(ANY, ANY): mine[ANY, kind]} if (ANY, kind) in mine else {})


def range_of(table: Table, quantity: str, conditions: tuple[str, ...]) -> tuple[float, float, bool]:
    """low and high quantiles of log(measured / predicted) of the runs under all conditions, or most of the first ones.

        low = min(q_low, 0)   high = max(q_high, 0)

    with the quantiles of runs of other jobs, publications weighted alike, so that about 80 % of the runs of a new
    publication lie between them; the prediction stays inside.

    Returns
    -------
    low, high [-]; whether runs under all of the conditions come from enough publications

    Source: as `evidence.residuals.residual_table`.
    """
    groups = (table.get((quantity, conditions[:known])) for known in range(len(conditions), -1, -1))
    nearest = next(found for found in groups if found)
    mine = table.get((quantity, conditions))
    tested = mine is not None and mine.publications >= LEAST_PUBLICATIONS
    return min(nearest.low, 0.0), max(nearest.high, 0.0), tested


def from_residuals(
    table: Table, quantity: str, conditions: tuple[str, ...], kind: str, evidence: Evidence
) -> Uncertainty:
    """The range of a quantity by the runs under its conditions. kind : of the runs that the evidence names"""
    low, high, tested = range_of(table, quantity, conditions)
    basis = evidence.basis(kind)
    words = evidence.words(kind)
    if not tested:
        words += f"; fewer than {LEAST_PUBLICATIONS} publications ran like this ({', '.join(conditions)})"
    own = evidence.own(kind)
    sure = (own.fastest, own.slowest) if own and own.speaks_for_itself else (math.inf, 0.0)
    if not tested:
        sure = (min(sure[0], math.exp(UNTESTED * low)), max(sure[1], math.exp(UNTESTED * high)))
    return Uncertainty(math.exp(low), math.exp(high), words, bool(basis.strength), basis=basis, sure=sure)


def of_announced(told: Uncertainty) -> Uncertainty:
    """The range where the accelerator is announced, and nobody has published measurements of it.

        low = exp(-hypot(ln low, e)),  high = exp(hypot(ln high, e)),  e = ln(1 + ANNOUNCED_ERROR)

    with the ends of published runs on other accelerators; limits are no surer than in an untested range.

    Source: errors of two independent factors, as in `training.uncertainty.of_measured_laws`.
    """
    factor = 1.0 + ANNOUNCED_ERROR
    words = f"by {whole_percent(ANNOUNCED_ERROR)} for an accelerator that nobody has measured"
    return widened(told, 1.0 / factor, factor, words)


def widened(told: Uncertainty, low: float, high: float, why: str) -> Uncertainty:
    """The range with one more thing that is not known, independent of what made it.

        low = exp(-hypot(ln low, ln low')),  high = exp(hypot(ln high, ln high'))

    low, high : factors between which 80 % of what is not known lie [-]; why : in words, after "wider"

    Source: errors of independent factors, as in `training.uncertainty.of_measured_laws`.
    """
    ends = -math.hypot(math.log(told.low), math.log(low)), math.hypot(math.log(told.high), math.log(high))
    sure = min(told.sure[0], math.exp(UNTESTED * ends[0])), max(told.sure[1], math.exp(UNTESTED * ends[1]))
    words = f"wider {why}; {told.evidence}"
    return replace(told, low=math.exp(ends[0]), high=math.exp(ends[1]), evidence=words, sure=sure)


def inverse(told: Uncertainty) -> Uncertainty:
    """The range of a rate from that of the time to the next: low = 1 / high, high = 1 / low."""
    low, high = told.sure
    sure = (1.0 / high if high else math.inf), (1.0 / low if math.isfinite(low) else 0.0)
    return replace(told, low=1.0 / told.high, high=1.0 / told.low, sure=sure)


def of_fixed(efficiency: Efficiency, error: float) -> Uncertainty | None:
    """The range where the user says how efficient the software is; None where laws and residuals say it.

    error : how far off the software's times are taken to be [-]
    """
    if efficiency.ideal:
        return SPEED_OF_LIGHT
    if efficiency.fixed:
        return symmetric(error, f"assumed, {100 * error:.0f} % around the efficiency that was given", False)
    return None


def symmetric(error: float, evidence: str, calibrated: bool) -> Uncertainty:
    """Times are off by a factor rather than by a difference."""
    return Uncertainty(1.0 / (1.0 + error), 1.0 + error, evidence, calibrated)


def in_words(error: float) -> str:
    """How near to a prediction: closer than 17 %, or within a factor of 2.6 where the error is as large as that."""
    return f"within a factor of {1.0 + error:.1f}" if error >= 1.0 else f"closer than {whole_percent(error)}"


class Evidence(Immutable, eq=True):
    """What is known of the runs of one stack or engine.

    table : how published runs fared; names : the stack and its kin, the nearest first
    same, other : what a run of the same kind, and one of another, is called
    alike : whether runs of another kind are off in the same direction
    """

    table: Seen
    names: tuple[str, ...]
    same: str
    other: str
    alike: bool

    def _found(self, kind: str) -> tuple[str, bool, Observed]:
        """The nearest group that has runs: the stack's of the kind, else all of it; else those of all stacks."""
        for name in self.names:
            for of in (kind, ANY):
                if (name, of) in self.table:
                    return name, of == kind, self.table[name, of]
        return ANY, False, self.table[ANY, ANY]

    def basis(self, kind: str) -> Basis:
        """The runs that the range of one kind rests on, with the bias of the stack's own runs, not of its kin's."""
        name, same, group = self._found(kind)
        if name == ANY:
            seen = Basis(runs=group.runs, publications=group.publications, inside=group.inside)
            return msgspec.structs.replace(seen, unseen_software=self.names[0])
        own = name == self.names[0]
        biased = self._worth_a_word(kind) if own else None
        return Basis(
            software=name,
            runs=group.runs,
            publications=group.publications,
            inside=group.inside,
            comparable=same,
            strength=strength_of(group.publications),
            bias=None if biased is None else Bias(**{name: getattr(biased, name) for name in Bias.__struct_fields__}),
            unseen_software="" if own else self.names[0],
        )

    def own(self, kind: str) -> Observed | None:
        """The software's own runs that count for one kind: of the kind, else of all where they are off alike."""
        kinds = (kind, ANY) if self.alike else (kind,)
        found = [self.table[self.names[0], one] for one in kinds if (self.names[0], one) in self.table]
        return next((group for group in found if group.speaks_for_itself), found[0] if found else None)

    def _worth_a_word(self, kind: str) -> Observed | None:
        """The own runs where their median, or one in ten of them, is far off."""
        group = self.own(kind)
        return group if group and (group.biased or group.slowest >= FAR_OFF) else None

    def words(self, kind: str) -> str:
        """The same in one sentence that goes on from `80 % range:`."""
        name, same, group = self._found(kind)
        if name == ANY:
            return (
                f"no {self.same} with {self.names[0]} are published; {group.inside:,} of {group.runs:,} with others "
                f"lie inside theirs ({_publications(group)})"
            )
        relative = "" if name == self.names[0] else f", the nearest relative of {self.names[0]},"
        what, inside = (self.same, "it") if same else (self.other, "theirs")
        return (
            f"{group.inside:,} of {group.runs:,} {what} with {name}{relative} lie inside {inside} "
            f"({_publications(group)}: {strength_of(group.publications)} evidence)"
        )


def _publications(group: Observed) -> str:
    return "1 publication" if group.publications == 1 else f"{group.publications} publications"
