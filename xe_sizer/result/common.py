"""Parts that every answer has: verdict, limits, ranges, advice. Frozen, in SI units.

Field names are the contract: add, never rename, within schema version 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import msgspec

from xe_sizer.errors import EXIT_DOES_NOT_FIT, EXIT_OK

SCHEMA_VERSION = 1


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all parts of a result."""


class Written(Struct, frozen=True):
    """How an answer came about: the command line, its date (YYYY-MM-DD, UTC) and the version of xe-sizer."""

    command: str
    date: str
    tool_version: str


class Look(Protocol):
    """How answers look in a notebook: a line, the first screen, a fragment of a page, its charts, a table of data."""

    def line(self, answer: Answer, /) -> str: ...
    def text(self, answer: Answer, /) -> str: ...
    def fragment(self, answer: Answer, /) -> str: ...
    def charts(self, answer: Answer, /) -> dict[str, Any]: ...
    def frame(self, answer: Answer, /) -> Any: ...


_LOOKS: list[Look] = []


def shown_by(look: Look) -> None:
    """Let answers look so: reports stand above them and say here how."""
    _LOOKS[:] = [look]


def _look() -> Look:
    """Raises NotImplementedError, for which a notebook has a look of its own, where no reports are imported."""
    if not _LOOKS:
        raise NotImplementedError("xe_sizer.api says how answers look")
    return _LOOKS[0]


class Answer(Struct, frozen=True, kw_only=True):
    """Base of what a command answers; `question` names the module of `xe_sizer.report.answers` that reports it.

    written : None where no command line asked, as from Python, or an older version did
    """

    question: ClassVar[str]

    schema_version: int
    written: Written | None = None

    @property
    def ok(self) -> bool:
        """Whether the answer is a yes."""
        raise NotImplementedError

    @property
    def resolved_scenarios(self) -> Sequence[dict[str, Any]]:
        """The resolved scenarios that it is about."""
        scenario = getattr(self, "scenario", None)
        return [scenario] if scenario else []

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        """Hourly price of each hardware that the answer is of, None where it is unknown."""
        return ()

    @property
    def exit_code(self) -> int:
        return EXIT_OK if self.ok else EXIT_DOES_NOT_FIT

    def __repr__(self) -> str:
        return _LOOKS[0].line(self) if _LOOKS else super().__repr__()

    def __str__(self) -> str:
        return _LOOKS[0].text(self) if _LOOKS else super().__repr__()

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return _look().fragment(self)

    def charts(self) -> dict[str, Any]:
        """The charts of its page by their titles: each the text of an SVG file, which a notebook draws."""
        return _look().charts(self)

    def to_frame(self) -> Any:
        """Its rows, those of `--format csv`, as a DataFrame.

        Raises
        ------
        InputError : pandas is not installed
        """
        return _look().frame(self)


class Range(Struct, frozen=True):
    """Low, expected and high value of one quantity."""

    low: float
    expected: float
    high: float


GIVEN_PRICE, ON_DEMAND, OWN = "given", "on-demand", "own servers"
"""Kinds of a price: that of the user, that for which no contract is asked, and the cost of servers that are owned."""
USERS_OWN = frozenset({GIVEN_PRICE, OWN})
"""Kinds that compare with any other: what the user pays."""
CAPITAL, ELECTRICITY, STAFF = "capital", "electricity", "staff"
"""What the cost of servers that are owned is made of."""


class CostPart(Struct, frozen=True):
    """A part of a cost, in its currency."""

    name: str
    value: float


class OwnServers(Struct, frozen=True):
    """What the cost of servers that are owned rests on.

    capex : what one costs to buy; years : of use; utilisation : share of their hours in which servers have work [-]
    kwh_price, pue : price of electricity, and total power over that of the servers [-]; null: electricity left out
    staff_share : staff and space, over capital and electricity [-]; null: none
    date, source : of the capex where it is a profile's
    """

    capex: float
    years: float
    utilisation: float
    kwh_price: float | None = None
    pue: float | None = None
    staff_share: float | None = None
    date: str | None = None
    source: str | None = None


class HourlyPrice(Struct, frozen=True):
    """What an hour costs where an answer has a price: of a whole server, or of one GPU whose price was given.

    hardware : the server, or the GPU; kind : on-demand, spot, reserved, capacity-block, `given` by the user, `own
    servers` whose parts make the price; null where the profile does not say
    date, region, source : of a server's price: when it was published, where it holds, and who says so
    own : what the cost of own servers rests on; null where they are rented
    """

    hardware: str
    per_hour: float
    currency: str
    kind: str | None = None
    date: str | None = None
    region: str | None = None
    source: str | None = None
    own: OwnServers | None = None


WEAK = "weak"
STRENGTHS = {"strong": 8, "fair": 3, WEAK: 1}
"""Words for what a range rests on, with the fewest publications of each: one author's error is in all of their runs."""
SPEAKS_FOR_ITSELF = 5
"""Publications from which runs of one kind of job say how a stack does on it, and no longer all runs with the stack.

Chosen: with fewer, one author who did something else says it.
"""


def strength_of(publications: int) -> str:
    """The word for so many publications; empty for none."""
    return next((word for word, least in STRENGTHS.items() if publications >= least), "")


class Bias(Struct, frozen=True):
    """How far published runs were off: measured over predicted time, publications weighted alike.

    fastest, median, slowest : one run in ten took less than the first, one in two more than the second, one in ten more
    than the third [-]; the first is 1 in results of older versions
    """

    runs: int
    publications: int
    median: float
    slowest: float
    fastest: float = 1.0


class Basis(Struct, frozen=True):
    """Published runs that a range rests on.

    software : the stack or engine of the runs; empty where nobody published any with it, and they are those of others
    inside : how many of the runs lie in the range that they were given
    comparable : whether they are of the same kind of job or quantity
    strength : weak, fair or strong, by publications; empty where the runs are those of others
    bias : of the software's own runs; None where their median is within 10 % of the prediction, and nine in ten took
    less than twice that
    unseen_software : the stack or engine of the answer where no published run with it says enough; else empty
    measured_on : date of the kernels' laws where they were measured on the user's own machine; else empty
    """

    runs: int
    publications: int
    inside: int
    software: str = ""
    comparable: bool = False
    strength: str = ""
    bias: Bias | None = None
    unseen_software: str = ""
    measured_on: str = ""


class Reason(Struct, frozen=True):
    """Why a job does not fit or misses a limit, and the smallest change that mends it."""

    code: str
    message: str
    fix: str | None = None


CERTAINTIES = {"sure": 0.90, "likely": 0.75, "unsure": 0.50, "unlikely": 0.0}
"""Words for a probability, with the least that each stands for."""
SURE = "sure"
"""The word for what needs no caution."""
UNSURE = "unsure"
"""Also the word for a memory that suffices if the host, of which nobody knows how much it has, has enough."""
BOUND, UNKNOWN = "bound", "unknown"
"""Words for what has no probability: a value that is a bound and no estimate, and one that nobody knows."""
UNSURE_MEMORY = "unsure-memory"
"""Code of the reason that memory fits with less confidence than is asked for."""
DEFAULT_CONFIDENCE = 0.5
"""With which a limit must be met where none is asked for: the expected value decides."""


FITS, TIGHT, DOES_NOT_FIT = "fits", "tight", "does-not-fit"
"""Words for memory: it suffices in three cases of four at least, in fewer, and in less than one of four."""
LIKELY, DOUBTED = CERTAINTIES["likely"], 0.25
"""Probabilities from which memory fits, and below which it does not [-]."""


def memory_word(probability: float | None, fits: bool) -> str:
    """The word for a memory.

    probability : that it suffices [-]; None where that turns on a host of which nobody knows how much it has
    fits : whether the cautious peak does, which the exit code follows; what it says is never turned, only doubted
    """
    if fits:
        return FITS if probability is not None and probability >= LIKELY else TIGHT
    return DOES_NOT_FIT if (probability or 0.0) < DOUBTED else TIGHT


def certainty_of(probability: float, known: bool = True) -> str:
    """The word for a probability. known : whether runs like this one have shown it; if not, it is at most likely"""
    word = next(word for word, least in CERTAINTIES.items() if probability >= least)
    return "likely" if word == SURE and not known else word


class Limit(Struct, frozen=True):
    """One limit of the scenario against the estimate; `value` is None where there is nothing to compare.

    probability : that the real value meets it, None where nobody can say [-]
    certainty : sure, likely, unsure or unlikely; `bound` for a value at the speed of light, `unknown` without a value
    low, high : the 80 % range of the value; None where it is exact or nobody can say
    """

    name: str
    limit: float
    value: float | None
    ok: bool
    probability: float | None = None
    certainty: str = ""
    low: float | None = None
    high: float | None = None


class Verdict(Struct, frozen=True):
    """`memory` is fits, tight or does-not-fit, by `memory_word`; empty in results of older versions.

    settled_by : what would settle a tight memory, in words
    margin : how close: headroom, tight (the cautious peak fits, and is not likely to) or over (it does not fit)
    fit_probability : that the memory suffices, None where nobody can say [-]; fit_certainty : its word, as of a limit,
    unsure where nobody can say
    confidence : probability with which limits must be met for a yes [-]
    """

    fits: bool
    meets_limits: bool
    reasons: tuple[Reason, ...] = ()
    limits: tuple[Limit, ...] = ()
    margin: str = ""
    fit_probability: float | None = None
    fit_certainty: str = ""
    confidence: float = DEFAULT_CONFIDENCE
    memory: str = ""
    settled_by: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.fits and self.meets_limits

    @property
    def certainty(self) -> str | None:
        """The least certainty of memory and limits; None where nobody said any."""
        said = {self.fit_certainty, *(limit.certainty for limit in self.limits)}
        return next((word for word in reversed(CERTAINTIES) if word in said), None)


class Gpus(Struct, frozen=True):
    """GPU count asked (or chosen), and the smallest count at which some layout fits (None: none tried did).

    minimum_offloads : whether only layouts that keep something in host memory fit on so few
    minimum_in_servers : whether it was looked for among whole servers alone, of several GPUs each
    """

    count: int
    nodes: int
    gpus_per_node: int
    minimum_that_fits: int | None
    minimum_offloads: bool = False
    minimum_in_servers: bool = False


class Factor(Struct, frozen=True):
    """A number of a product, and what it counts; the product is divided by it where `divides`."""

    value: float
    name: str
    divides: bool = False


class MemoryComponent(Struct, frozen=True):
    """`terms` is the part as a sum of products, with the numbers put in; empty where it is no such sum."""

    name: str
    bytes: float
    formula: str
    source: str
    terms: tuple[tuple[Factor, ...], ...] = ()


ONLY_STAGE = "pipeline stage 1 of 1"
"""What names the fullest GPU of a job that has no pipeline."""


class Ledger(Struct, frozen=True):
    """Memory of the worst GPU at its worst moment; `gpu` says which, `phase` when. The components sum to the peak."""

    peak_bytes: float
    usable_bytes: float
    headroom_bytes: float
    phase: str
    gpu: str
    components: tuple[MemoryComponent, ...]


class TimeComponent(Struct, frozen=True):
    """`terms` is the part as a sum of products, with the numbers put in; empty where it is no such sum."""

    name: str
    seconds: float
    share: float
    formula: str = ""
    source: str = ""
    terms: tuple[tuple[Factor, ...], ...] = ()


class OperatorCost(Struct, frozen=True):
    """What one operator takes of a step, all passes and layers together.

    module : part of the model; sizes : its shape by name, m, n and k of a matrix product
    times : how often its forward runs in a step; flops, bytes : moved or sent
    bound : compute, memory, launch or network; parts : name of a part of the step -> seconds of it
    """

    name: str
    module: str
    sizes: dict[str, float]
    times: float
    flops: float
    bytes: float
    seconds: float
    share: float
    bound: str
    parts: dict[str, float]


class Advice(Struct, frozen=True):
    """One change, its effect, and the command that makes it."""

    change: str
    effect: str
    command: str


class LeftOut(Struct, frozen=True):
    """Hardware that has no answer, and why."""

    name: str
    reason: str


class Source(Struct, frozen=True):
    """Where a figure comes from: the profile or law, and its origin."""

    name: str
    source: str


def assumed_hardware(scenario: dict[str, Any]) -> tuple[str, ...]:
    """The keys of the hardware that were assumed: scenarios name theirs, files of other tools need not."""
    origin = scenario.get("origin") or {}
    return tuple(key for key in ("server", "gpu") if origin.get(key) == "default")


@runtime_checkable
class Sized(Protocol):
    """What answers about one scenario share, whatever it asks.

    minimum_keeps : sizes of the layout that the minimum of GPUs keeps where the user fixed them
    currency : of its prices; None where there are none
    compared : by what two runs of one scenario are compared, beside GPUs and memory
    misread : limits that look mistaken, in words
    parts_s : seconds of the parts that two answers are told apart by: of what, then of which part
    """

    question: ClassVar[str]
    minimum_keeps: ClassVar[tuple[str, ...]]

    @property
    def ok(self) -> bool: ...
    @property
    def currency(self) -> str | None: ...
    @property
    def compared(self) -> dict[str, Any]: ...
    @property
    def misread(self) -> tuple[str, ...]: ...
    @property
    def parts_s(self) -> dict[str, dict[str, float]]: ...
    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]: ...
    @property
    def scenario(self) -> dict[str, Any]: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def gpus(self) -> Gpus: ...
    @property
    def layout(self) -> msgspec.Struct: ...
    @property
    def memory(self) -> Ledger: ...
    @property
    def advice(self) -> tuple[Advice, ...]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    @property
    def sources(self) -> tuple[Source, ...]: ...


R = TypeVar("R", bound=Struct)


def with_advice(result: R, verdict: Verdict, advice: tuple[Advice, ...]) -> R:
    """A result with its verdict and advice, the first piece of which mends the gravest reason of the verdict."""
    if advice and verdict.reasons:
        first = msgspec.structs.replace(verdict.reasons[0], fix=advice[0].change)
        verdict = msgspec.structs.replace(verdict, reasons=(first, *verdict.reasons[1:]))
    return msgspec.structs.replace(result, advice=advice, verdict=verdict)
