"""What studies such as `plan` and `compare` answer, and `profiles list` and `data`: the JSON contract, in SI units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from xe_sizer.errors import EXIT_INTERRUPTED
from xe_sizer.result.common import Advice, Answer, Basis, CostPart, HourlyPrice, LeftOut, Range, Sized, Struct, Verdict
from xe_sizer.result.training import Layout, Pool

OBJECTIVES = ("servers", "gpus", "cost", "capex", "time", "energy")
INTERRUPTED = "interrupted before its answer"


class Rule(msgspec.Struct, frozen=True):
    """A rule of the search space and how many groupings (tp, pp, cp, dp) or layouts it removed."""

    name: str
    reason: str
    removed: int
    unit: str


BY_BATCH, BY_LAYOUT, TOO_FEW, TOO_MANY, BY_NOTHING = "batch", "layout", "too-few", "too-many", "none"
"""Why numbers of GPUs were not searched: the global batch or the layout that was given rules them out, so that fewer
may do under another; fewer than such as do not; more than such as do; no layout goes with them."""


class Skipped(msgspec.Struct, frozen=True):
    """Numbers of GPUs that were not searched, by one of the reasons above, and the reason in words."""

    code: str
    gpus: tuple[int, ...]
    reason: str


class Numbers(msgspec.Struct, frozen=True):
    """The numbers of GPUs of one kind of hardware that were searched, ascending, and those that were not."""

    hardware: str
    tried: tuple[int, ...]
    skipped: tuple[Skipped, ...] = ()


class Search(msgspec.Struct, frozen=True):
    """How much was searched. `complete` is false where an interrupt ended it."""

    layouts_considered: int
    layouts_feasible: int
    seconds: float
    complete: bool = True
    rules: tuple[Rule, ...] = ()
    numbers: tuple[Numbers, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """The best layout on one number of one kind of GPU.

    pareto : no other candidate needs as few GPUs and as little time, price and energy, and less of one of them; nor
    does a smaller one, no less plain, come within the model's error of it
    bound : what limits a step; command : the estimate of it; start_up_s : before the first step, no part of `total_s`
    fit_probability : that card and host suffice, None where nobody knows how much the host has [-]
    host_bytes : of a server, for what is offloaded; host_available_bytes : None where nobody knows
    host_reserve_bytes : of what it has, kept for the operating system and the process that trains
    pools, colocated : of reinforcement learning, how the GPUs are split; else empty and None
    host_most_bytes : that the server can be ordered with, where what it has is one configuration of several
    hourly_price : what the price rests on
    cost_parts : of the price where servers are owned; electricity : for servers and cooling, where its price is given;
    a rent includes it. power_w : of the servers at load, without cooling [W]
    capex : what the servers cost to buy, None where they are rented or nobody knows; liquid_cooled : whether they need
    a loop of liquid
    """

    gpu: str
    server: str
    gpus: int
    nodes: int
    layout: Layout
    step_s: float
    total_s: Range
    gpu_hours: float
    peak_bytes: float
    headroom_bytes: float
    bound: str
    pareto: bool
    meets_limits: bool
    price: float | None = None
    currency: str | None = None
    energy_kwh: float | None = None
    tokens_per_s: float = 0.0
    command: str = ""
    start_up_s: float | None = None
    fit_probability: float | None = None
    host_bytes: float = 0.0
    host_available_bytes: float | None = None
    host_most_bytes: float | None = None
    host_reserve_bytes: float = 0.0
    pools: tuple[Pool, ...] = ()
    colocated: bool | None = None
    hourly_price: HourlyPrice | None = None
    cost_parts: tuple[CostPart, ...] = ()
    electricity: float | None = None
    power_w: float | None = None
    capex: float | None = None
    liquid_cooled: bool = False


class Kind(msgspec.Struct, frozen=True):
    """The best plan on one kind of hardware by the objective of all plans, or why there is none.

    candidate : its place in `candidates`, None where there is none; reason : why not, or which limits it misses
    limits_probability : of the limit that is least sure; None where there is none, or nobody can say [-]
    cheapest : of a kind that is rented, the place of its cheapest plan within the limits where that is another
    own : place of the plan on servers that are bought with which a rented kind is compared; own_from_utilisation : use
    from which that costs less than the cheapest plan here, None where they do not compare or at no use [-]
    """

    hardware: str
    candidate: int | None = None
    meets_limits: bool = False
    recommended: bool = False
    limits_probability: float | None = None
    reason: str = ""
    cheapest: int | None = None
    own: int | None = None
    own_from_utilisation: float | None = None


class Way(msgspec.Struct, frozen=True):
    """Another way to run the job that is faster on as many GPUs, or lets fewer servers do: the change and its plan.

    time_ratio : over the chosen plan, on as many GPUs; command : the plan with the change
    """

    change: str
    candidate: Candidate
    time_ratio: float
    command: str


class Answers(msgspec.Struct, frozen=True):
    """Places in `candidates`: the fewest GPUs that fit, the fastest, the cheapest; `chosen` is the plan.

    What differs by less than the model's error is equal there, and the smaller is taken.

    cheapest : of those whose price is known, and of these those that meet the limits where any does; None where none is
    fewest_gpu_hours : whatever they cost, of those that meet the limits where any does
    nearest : where no candidate meets the limits, the one that misses them by least; it is chosen then
    """

    smallest: int | None = None
    fastest: int | None = None
    cheapest: int | None = None
    fewest_gpu_hours: int | None = None
    chosen: int | None = None
    nearest: int | None = None


class PlanResult(Answer, frozen=True, kw_only=True):
    """The best layout on every number of every kind of GPU, and which of them is the plan.

    ways : of running the job otherwise on the hardware of the chosen plan, the fastest first; they change what a step
    reads, what is learnt or what runs beside the job, so that the plan is made without them
    kinds : of hardware, the one of the chosen plan first, then by the objective, then those without a plan
    basis : the published runs behind the range of the chosen plan
    """

    question: ClassVar[str] = "plan"

    tool_version: str
    scenario: dict[str, Any]
    objective: str
    verdict: Verdict
    search: Search
    candidates: tuple[Candidate, ...]
    answers: Answers
    command: str
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    ways: tuple[Way, ...] = ()
    basis: Basis | None = None

    @property
    def ok(self) -> bool:
        return self.verdict.ok

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return tuple(one.hourly_price for one in self.candidates)

    @property
    def exit_code(self) -> int:
        return super().exit_code if self.search.complete else EXIT_INTERRUPTED


# `compare`.


class Alternative(msgspec.Struct, frozen=True):
    """One of the results that are compared: of jobs, or of services."""

    name: str
    result: Sized


class Difference(msgspec.Struct, frozen=True):
    """Seconds that a part of the step takes over the whole job, in the order of the alternatives.

    Of services the seconds in one step, whose kind stands before the part.
    """

    name: str
    total_s: tuple[float, ...]


class Comparison(Answer, frozen=True, kw_only=True):
    question: ClassVar[str] = "compare"

    alternatives: tuple[Alternative, ...]
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(one.result.ok for one in self.alternatives)

    @property
    def resolved_scenarios(self) -> Sequence[dict[str, Any]]:
        return [one.result.scenario for one in self.alternatives]

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return tuple(one.result.hourly_prices[0] for one in self.alternatives)


# `sensitivity`.


class Outcome(msgspec.Struct, frozen=True):
    """What a job comes to; `minimum` is the fewest GPUs on which some layout fits.

    low_s, high_s : 80 % range of the time; None in answers of older versions
    minimum_offloads : whether only layouts that keep something in host memory fit on so few
    meets_limits : None where there are no limits, or in answers of older versions
    limits_probability : of the limit that is least sure; None where nobody can say
    hourly_price : what the price rests on

    Of a service `total_s` is the mean time of a request, `gpu_hours` the GPU time that one takes at the most requests
    that are sustained within the limits, and `price` that of an hour; latencies are those that limits are compared
    with. These and replicas are None of a job.
    """

    fits: bool
    gpus: int
    minimum: int | None
    total_s: float
    gpu_hours: float
    peak_bytes: float
    usable_bytes: float
    price: float | None
    currency: str | None
    low_s: float | None = None
    high_s: float | None = None
    minimum_offloads: bool = False
    meets_limits: bool | None = None
    limits_probability: float | None = None
    hourly_price: HourlyPrice | None = None
    replicas: int | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    requests_per_s: float | None = None


class Effect(msgspec.Struct, frozen=True):
    """A step of a factor: what it leads to, and each figure over that of the job as it was asked."""

    step: str
    outcome: Outcome
    time_ratio: float
    gpus_ratio: float
    memory_ratio: float
    gpu_hours_ratio: float


class Factor(msgspec.Struct, frozen=True):
    name: str
    effects: tuple[Effect, ...]


DEADLINE = "deadline"
"""The factor that moves no time: its steps say what other numbers of GPUs bring."""
OWN_SERVERS = "own servers"
"""The factor that moves the price alone: how much and how long servers that are bought are used, and electricity."""


class Sensitivity(Answer, frozen=True, kw_only=True):
    """ranked_by : the ratio of its effects by which the widest factor comes first; cautions : as of an estimate."""

    question: ClassVar[str] = "sensitivity"

    scenario: dict[str, Any]
    base: Outcome
    factors: tuple[Factor, ...]
    ranked_by: Literal["time_ratio", "gpu_hours_ratio"] = "time_ratio"
    advice: tuple[Advice, ...] = ()
    warnings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.base.fits

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return (self.base.hourly_price,)


# `plan --scaling`.


class ScalingPoint(msgspec.Struct, frozen=True):
    """The best on one number of GPUs. `bound` limits a step; `lost` is what takes most beside compute."""

    gpus: int
    global_batch: int
    layout: Layout
    step_s: float
    tokens_per_s: float
    efficiency: float
    bound: str
    lost: str


class Scaling(Answer, frozen=True, kw_only=True):
    """Strong scaling keeps the global batch, weak scaling grows it with the GPUs."""

    question: ClassVar[str] = "scaling"

    scenario: dict[str, Any]
    kind: str
    points: tuple[ScalingPoint, ...]

    @property
    def ok(self) -> bool:
        return bool(self.points)


# `models`.


class ModelRow(msgspec.Struct, frozen=True):
    """A model that fits: at the context that was asked for, and the longest that it takes.

    tokens_per_s : of training on all GPUs, or of one request; weights : of a service; layout : of a job
    """

    name: str
    parameters: float
    context: int
    peak_bytes: float
    usable_bytes: float
    fit_probability: float
    tokens_per_s: float
    weights: str | None = None
    layout: Layout | None = None


class ModelTable(Answer, frozen=True, kw_only=True):
    """Models that likely fit, the largest first.

    too_large : how many do not, of which smallest_too_large has the fewest parameters
    not_possible : how many cannot be asked, as the job is none of theirs
    software : the stack, or the engine, of the largest that fits; empty where none does
    """

    question: ClassVar[str] = "models"

    serving: bool
    gpu: str
    gpus: int
    job: str
    context: int
    rows: tuple[ModelRow, ...]
    too_large: int = 0
    smallest_too_large: str = ""
    not_possible: int = 0
    software: str = ""

    @property
    def ok(self) -> bool:
        return bool(self.rows)


# `plan --grid`.


class SweepRow(msgspec.Struct, frozen=True):
    """The chosen plan of one question of a sweep, or why there is none.

    verdict : fit and limits with how sure they are; supposed : steps or epochs of the run, with the origin of each, as
    a scenario has them. None and empty where there is no plan, or in answers of older versions.
    """

    scenario: str
    values: dict[str, str]
    ok: bool
    reason: str = ""
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    supposed: dict[str, Any] = {}


class SweepResult(Answer, frozen=True, kw_only=True):
    question: ClassVar[str] = "sweep"

    tool_version: str
    objective: str
    rows: tuple[SweepRow, ...]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return tuple(row.candidate.hourly_price for row in self.rows if row.candidate)

    @property
    def exit_code(self) -> int:
        return EXIT_INTERRUPTED if any(row.reason == INTERRUPTED for row in self.rows) else super().exit_code


# `profiles list`.


class Profiles(Answer, frozen=True, kw_only=True):
    """Of each profile its `kind`, its `name`, and figures that depend on the kind."""

    question: ClassVar[str] = "profiles"

    profiles: tuple[dict[str, Any], ...]

    @property
    def ok(self) -> bool:
        """A list is no verdict."""
        return True


# `data`.

Method = Literal["counted", "sampled", "assumed"]


class TokenHistogram(Struct, frozen=True):
    """At most 64 lengths [tokens] and how many sequences have each: mean, shortest and longest are kept."""

    lengths: tuple[int, ...]
    counts: tuple[int, ...]


class EndOfLengths(Struct, frozen=True):
    """The shortest or longest sequence, and where its row stands.

    exact : whether it was tokenised and none can be beyond it; unit : line or row
    """

    tokens: int
    exact: bool
    file: str
    unit: str
    number: int


class UnreadRow(Struct, frozen=True):
    """A row that was left out, and why."""

    file: str
    number: int | None
    reason: str


class DataStatistics(Answer, frozen=True, kw_only=True):
    """Token lengths of the samples in some files, read as one data set.

    kinds : samples by how they were read, as chat or preference pairs
    sequences_per_sample : 2 for preference pairs, whose answers are sequences of their own
    tokens : of all sequences together; mean_tokens : of a sequence. Ranges are 80 % where a sample was tokenised, and
    what tokenizers differ by where nothing was
    percentiles : tokens by p5 to p99
    method : counted (every token), sampled (some sequences tokenised, the others by their bytes) or assumed (by bytes)
    tokenised : sequences that were tokenised; tokenizer, template : files; tokens_per_message : where there is
    no template
    unread : rows that were left out, the first of them in unread_rows; images : in the samples, not counted
    """

    question: ClassVar[str] = "data"

    files: tuple[str, ...]
    kinds: dict[str, int]
    samples: int
    sequences_per_sample: float
    tokens: Range
    mean_tokens: Range
    percentiles: dict[str, float]
    shortest: EndOfLengths
    longest: EndOfLengths
    histogram: TokenHistogram
    method: Method
    tokenised: int
    tokenizer: str | None
    template: str | None
    tokens_per_message: int | None
    unread: int
    unread_rows: tuple[UnreadRow, ...]
    images: int
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Statistics are no verdict."""
        return True
