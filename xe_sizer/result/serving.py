"""What `serve` says: frozen, in SI units, with the names of the JSON contract (docs/reference/result.md).

Field names are the contract: add, never rename, within schema version 1. Components of memory sum to `peak_bytes`,
components of a phase to its `seconds`. A latency that nothing bounds, because the load exceeds what the replicas take,
is null.
"""

from __future__ import annotations

from typing import Any, ClassVar

from xe_sizer.result.common import (
    Advice,
    Answer,
    Basis,
    CostPart,
    Gpus,
    HourlyPrice,
    Ledger,
    LeftOut,
    OperatorCost,
    Source,
    Struct,
    TimeComponent,
    Verdict,
)

# Replicas that are more than alike ones of one model: layouts, LoRA adapters, sessions kept, two kinds.


class ReplicaLayout(Struct, frozen=True):
    """How the GPUs of one replica share the model; `dp` ranks serve sequences of their own and the experts together."""

    tp: int
    pp: int
    ep: int
    dp: int


class Adapters(Struct, frozen=True):
    """LoRA adapters of the service.

    count : that requests ask for; held : of them on the GPU at once; rank : that they are allocated with
    bytes : of all held ones on one GPU; adapter_bytes : of one, on all GPUs of a replica
    distinct : different ones in a decode step, in the mean; seconds, share : of a decode step, and over all of it
    """

    count: int
    held: int
    rank: int
    bytes: float
    adapter_bytes: float
    distinct: float
    seconds: float
    share: float


class Speculation(Struct, frozen=True):
    """Speculative decoding.

    method : of it, empty where only proposals and their acceptance are stated; label : the same in words
    draft_tokens : proposed for a sequence in a step; acceptance : probability that the one at each position is kept if
    those before it were; acceptance_low, acceptance_high, source : as published of the method
    assumed : the acceptance is that of the method, which nobody stated for this service
    tokens_per_step : that a sequence gains in a step
    bytes : of the drafter's weights on one GPU; seconds, share : of a decode step, and over all of it
    without_tpot_s, without_requests_per_s : the same service without drafts; null where it was not sized
    """

    method: str
    label: str
    draft_tokens: int
    acceptance: tuple[float, ...]
    assumed: bool
    tokens_per_step: float
    bytes: float
    seconds: float
    share: float
    acceptance_low: tuple[float, ...] = ()
    acceptance_high: tuple[float, ...] = ()
    source: str = ""
    without_tpot_s: float | None = None
    without_requests_per_s: float | None = None


class Fit(Struct, frozen=True):
    """The longest sequences, or the most of them, that fit at once, each to its last token.

    question : context or sessions; tokens : prompt and answer; bound : memory, positions (of the model), max_model_len,
    or max_sequences (of the engine), whatever ends it
    """

    question: str
    tokens: int
    input_tokens: int
    output_tokens: int
    sessions: int
    sessions_per_replica: int
    bound: str


class SessionCache(Struct, frozen=True):
    """Users who come back to a cache on the GPU or in host memory, of one replica.

    sessions : whose users think; on_gpu, in_host : for which there is room
    hit_gpu, hit_host, missed : shares of those that come back
    fetch_s : to bring one back from host memory; recompute_s : to compute it again instead
    ttft_gpu_s, ttft_host_s, ttft_missed_s : mean time to the first token of each kind
    """

    host_gib: float
    sessions: float
    on_gpu: float
    in_host: float
    hit_gpu: float
    hit_host: float
    missed: float
    fetch_s: float
    recompute_s: float
    ttft_gpu_s: float
    ttft_host_s: float
    ttft_missed_s: float


class Turn(Struct, frozen=True):
    """One turn of a session: its prompt, of which the history may be found, and the mean times of its answer."""

    turn: int
    prompt_tokens: float
    history_tokens: float
    ttft_s: float
    request_s: float


class SessionTurns(Struct, frozen=True):
    """Sessions of several turns, each with the whole history as its prompt.

    gap_s : between an answer and the next turn; mean_prompt_tokens : over all turns
    found_share : of prompt tokens that the prefix cache has; history_share : that it had with room for all
    sessions : in progress, of all replicas; sessions_per_s : that begin
    kept_s : how long the GPU keeps what nobody uses
    by_turn : the first, the median and the last
    cached : whether the engine has a prefix cache; the service if it had none, or one: its GPUs, requests per second
    within the limits, and whether it keeps them; null where nobody looks
    """

    turns: int
    gap_s: float
    mean_prompt_tokens: float
    found_share: float
    history_share: float
    sessions: float
    sessions_per_s: float
    kept_s: float
    by_turn: tuple[Turn, ...]
    cached: bool = True
    otherwise_gpus: int | None = None
    otherwise_requests_per_s: float | None = None
    otherwise_meets_limits: bool | None = None


class Aggregated(Struct, frozen=True):
    """The same service with prompts and answers on all replicas; latencies are those that limits are compared with."""

    gpus: int
    replicas: int
    layout: ReplicaLayout
    meets_limits: bool
    ttft_s: float | None
    tpot_s: float | None
    max_requests_per_s: float


DISAGGREGATED, AGGREGATED, ALIKE = "disaggregated", "aggregated", "alike"
"""What serves the load better: prompts on replicas of their own, or on all replicas; neither by more than 5 %."""


class Disaggregation(Struct, frozen=True):
    """Prompts are read on replicas of their own, the others of the result only decode.

    prefill_gpus : of one prefill replica; utilisation : of the prefill replicas and of the links to the others
    queue_s, prefill_s, transfer_s, decode_s : mean parts of the time to the first token, which they sum to; null where
    it is unbounded
    transfer_bytes : cache of one prompt; path : over which it goes, node or network
    aggregated : the answer without, null where it has none; better : which is; by : gpus or max_requests_per_s
    """

    prefill_replicas: int
    prefill_gpus: int
    prefill_layout: ReplicaLayout
    decode_replicas: int
    utilisation: float
    link_utilisation: float
    queue_s: float | None
    prefill_s: float
    transfer_s: float
    decode_s: float
    transfer_bytes: float
    path: str
    aggregated: Aggregated | None
    better: str
    by: str


class ImageEncoders(Struct, frozen=True):
    """GPUs that only encode images, and send the embeddings to the replicas.

    replicas : of one GPU each; utilisation : of them
    queue_s, encode_s, transfer_s : mean parts of the time to the first token; queue_s null where it is unbounded
    embedding_bytes : of a request; path : over which they go, node or network; memory : of one of these GPUs
    otherwise_gpus, otherwise_ttft_s : the service whose replicas encode their own images; null where it has no answer
    """

    replicas: int
    utilisation: float
    queue_s: float | None
    encode_s: float
    transfer_s: float
    embedding_bytes: float
    memory: ServeMemory
    path: str
    otherwise_gpus: int | None = None
    otherwise_ttft_s: float | None = None


# The answer.

OVERLOADED = "overloaded"
"""Code of the reason that more requests come than are taken."""
QUEUES = "queues"
"""Code of the reason that requests wait for a place longer than they may."""
TOO_LONG = "too-long"
"""Code of the reason that the engine does not start: a longer sequence is asked for than the model has positions."""

REJECTED = "rejected"
"""Code of the reason that the engine takes none of the requests: they are longer than the model has positions."""


class Span(Struct, frozen=True):
    """Low, expected and high value of a latency [s]; all three null where it is unbounded."""

    low: float | None
    expected: float | None
    high: float | None


class ServeMemory(Ledger, frozen=True):
    """Memory of a GPU that serves.

    error_share : how far the parts beside weights and cache may be off, of the usable memory
    """

    error_share: float = 0.0


class LatencyAt(Struct, frozen=True):
    """Latencies that so many per cent of the requests keep [s]."""

    percentile: float
    ttft_s: float | None
    tpot_s: float | None
    request_s: float | None


class Latency(Struct, frozen=True):
    """Time to the first token, time per further token, and time of a whole request: means with their ranges.

    Without output tokens the first is that of the whole request, and the second 0.

    percentiles : where requests arrive by chance; empty for a fixed number of requests
    evidence, basis : what the ranges rest on, in words and in figures; calibrated : whether that is measurements
    """

    ttft_s: Span
    tpot_s: Span
    request_s: Span
    percentiles: tuple[LatencyAt, ...]
    evidence: str
    calibrated: bool
    basis: Basis | None = None


class Throughput(Struct, frozen=True):
    """Of all replicas. Under overload it is what they take, not what is asked; zero where nothing fits.

    requests_in_flight : waiting or running, in the mean (Little's law: rate x time of a request); null where nothing
    bounds the waiting
    """

    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    tokens_per_s_per_user: float
    output_tokens_per_s_per_gpu: float
    requests_in_flight: float | None = None


class PerReplica(Struct, frozen=True):
    """What one of the working replicas gets and gives, of what else is the service's.

    concurrency : requests in flight, waiting or running, in the mean; null where nothing bounds the waiting
    running_requests : of these those that run
    """

    gpus: int
    requests_per_s: float
    concurrency: float | None
    running_requests: float
    output_tokens_per_s: float


class KvCache(Struct, frozen=True):
    """The cache of one replica, all its GPUs together.

    bytes_per_token : in the whole model; gpu_bytes_per_token : of them in the layers on the GPUs
    max_concurrency : requests of the asked length, to their last token, at once
    state_bytes_per_sequence : of recurrent states and windows of convolutions, of a model that has any
    """

    bytes_per_token: float
    pool_bytes: float
    pool_tokens: float
    max_concurrency: float
    gpu_bytes_per_token: float | None = None
    state_bytes_per_sequence: float | None = None


class Replicas(Struct, frozen=True):
    """Copies of the model, `spare` of which take no load.

    utilisation : load over the capacity of the working replicas within the latency limits; max_requests_per_s : that
    max_load : the same in the unit of the load, None where there is none or no limit of it
    running_requests : requests inside one working replica, in the mean
    """

    count: int
    spare: int
    gpus: int
    nodes: int
    utilisation: float
    max_requests_per_s: float
    running_requests: float
    max_load: float | None = None


class ApiComparison(Struct, frozen=True):
    """What an API would charge for the same requests, and from how many the service is cheaper.

    per_million_tokens : of both kinds alike, in the mix of the load; per_hour : of the load that the service takes
    per_day, tokens_per_day, service_per_day : of a day, whose hours may differ in load: what the API charges, for how
    many tokens of both kinds, and what the service costs
    break_even_requests_per_s, break_even_tokens_per_day : from which the service is cheaper, tokens of both kinds
    break_even_utilisation : the same over what the service sustains; above 1 it never is [-]
    cheaper : whether the service is over such a day. These and its cost are null where the service has no price
    """

    per_million_input_tokens: float
    per_million_output_tokens: float
    per_million_tokens: float
    per_hour: float
    per_day: float
    tokens_per_day: float
    service_per_day: float | None
    break_even_requests_per_s: float | None
    break_even_tokens_per_day: float | None
    break_even_utilisation: float | None
    cheaper: bool | None


class ServeCost(Struct, frozen=True):
    """Price of all GPUs, divided between prompts and answers as they share the replicas' time; null without a price.

    per_million_tokens : of both kinds alike, which is what kinds of hardware are compared by
    billed_gpus : GPUs that the hour pays for; null without a price
    energy_kwh_per_million_tokens : prompts and answers together; null where the design power is not known
    energy_formula : what that energy counts, in words
    hourly_price : what the price rests on
    parts : of the price per hour where servers are owned, which they sum to; else empty
    electricity_per_hour : for servers and cooling, where its price is given; a rent includes it
    power_w : of the servers at load, without cooling [W]; null where nobody knows what they draw
    api : the same requests at the price of an API, where one is given
    """

    per_hour: float | None
    per_million_input_tokens: float | None
    per_million_output_tokens: float | None
    energy_kwh_per_million_tokens: float | None
    currency: str
    energy_formula: str = ""
    per_million_tokens: float | None = None
    billed_gpus: int | None = None
    hourly_price: HourlyPrice | None = None
    parts: tuple[CostPart, ...] = ()
    electricity_per_hour: float | None = None
    power_w: float | None = None
    api: ApiComparison | None = None


class PhaseModule(Struct, frozen=True):
    name: str
    seconds: float


class Phase(Struct, frozen=True):
    """One step of a replica; `modules` are its kernels once more, by part of the model.

    operators : the step operator by operator; empty where nobody asked for it
    expert_operators : those of a GPU that holds experts alone, which work while the others wait; or empty
    """

    seconds: float
    components: tuple[TimeComponent, ...]
    modules: tuple[PhaseModule, ...]
    operators: tuple[OperatorCost, ...] = ()
    expert_operators: tuple[OperatorCost, ...] = ()


class Phases(Struct, frozen=True):
    """`prefill` is a step with prefill, beside which an engine that mixes also decodes; `decode` one of decodes."""

    prefill: Phase
    decode: Phase


class Images(Struct, frozen=True):
    """Images in each prompt, and what they take.

    tokens_each : of the language model for one image; tokens : for those of a prompt
    patches_each : that the encoder sees for one image
    encoder_s : to encode the images of one prompt, apart from all else
    """

    per_request: int
    size: str
    tokens_each: int
    tokens: int
    patches_each: int
    encoder_s: float


class ExpertsApart(Struct, frozen=True):
    """GPUs of a replica that hold experts alone, beside those that attend.

    micro_batches : of a decode step; memory : of a GPU of experts
    attention_s, experts_s : of a decode step, how long the busiest GPU of each kind computes
    attention_wait_s, experts_wait_s : and how long it waits; dispatch_s, combine_s : tokens on their way there and back
    """

    gpus: int
    attention_gpus: int
    micro_batches: float
    memory: ServeMemory
    attention_s: float
    experts_s: float
    attention_wait_s: float
    experts_wait_s: float
    dispatch_s: float
    combine_s: float


class ServedExperts(Struct, frozen=True):
    """Experts of a mixture on several ranks, as a decode step has them.

    per_gpu : held by a rank, with copies; redundant : copies in a layer, null where nothing places experts by load
    busiest_load : tokens of the busiest rank over their mean
    exchange_s : of a decode step, tokens on their way to experts and back; waited_s : of these, what nothing hides, or
    with experts on GPUs of their own all that those that attend wait
    apart : those GPUs; null where all do both
    """

    dispatcher: str
    per_gpu: float
    redundant: int | None
    busiest_load: float
    exchange_s: float
    waited_s: float
    apart: ExpertsApart | None = None


class BenchmarkLatency(Struct, frozen=True):
    """Of all requests of a test: the mean with its range, the median, and what so many per cent of them keep [s]."""

    mean: Span
    median: float
    p90: float
    p95: float
    p99: float


class Benchmark(Struct, frozen=True):
    """A test of so many requests, over all replicas, as benchmark tools print it.

    arrivals : closed-loop, poisson, constant, trace or all-at-once
    concurrency, request_rate : that requests are kept at, or come at; null where they are not
    duration_s : from the first request to the last answer
    input_tokens, output_tokens : of all requests together
    requests_per_s, output_tokens_per_s, total_tokens_per_s : over the duration, with its beginning and its end
    mean_concurrency : requests in flight, in the mean over the duration
    goodput_per_s : requests that keep the user's limits on latency; null without such limits
    itl_s : time between two tokens of a request, of all requests together; e2e_latency_s : of a whole request
    preemptions : how often a request of one replica lost its cache to others, and began again
    """

    arrivals: str
    requests: int
    concurrency: int | None
    request_rate: float | None
    duration_s: Span
    input_tokens: int
    output_tokens: int
    requests_per_s: Span
    output_tokens_per_s: Span
    total_tokens_per_s: Span
    mean_concurrency: float
    goodput_per_s: float | None
    ttft_s: BenchmarkLatency
    tpot_s: BenchmarkLatency
    itl_s: BenchmarkLatency
    e2e_latency_s: BenchmarkLatency
    preemptions: int


class GpuSlice(Struct, frozen=True):
    """The part of a GPU that each replica runs on.

    name : as it was asked for; per_gpu : of them on a GPU, each with one replica
    compute_share, memory_share, bandwidth_share : of the GPU, with all the others busy
    in_hardware : multiprocessors and memory are its own (MIG, partitions); else the replicas share them in software
    """

    name: str
    per_gpu: int
    compute_share: float
    memory_share: float
    bandwidth_share: float
    in_hardware: bool


class FleetOption(Struct, frozen=True):
    """The service on one kind of hardware. Latencies are those that limits are compared with.

    electricity_per_hour : as of `ServeCost`
    power_w : design power of all GPUs, null where it is not known; what decides where prices are not
    fit : what fits it, where that is asked
    total_tokens_per_s_per_gpu : of prompts and answers
    """

    gpu: str
    server: str
    gpus: int
    replicas: int
    layout: ReplicaLayout
    fits: bool
    meets_limits: bool
    ttft_s: float | None
    tpot_s: float | None
    output_tokens_per_s_per_gpu: float
    utilisation: float
    cost_per_hour: float | None
    cost_per_million_output_tokens: float | None
    currency: str
    power_w: float | None
    cost_per_million_tokens: float | None = None
    fit: Fit | None = None
    hourly_price: HourlyPrice | None = None
    electricity_per_hour: float | None = None
    total_tokens_per_s_per_gpu: float | None = None


class ParetoPoint(Struct, frozen=True):
    """A way to run a replica that no other beats in both: tokens a second per user, and per GPU."""

    layout: ReplicaLayout
    running_requests: float
    tokens_per_s_per_user: float
    output_tokens_per_s_per_gpu: float
    ttft_s: float | None


BY_PRICE, BY_POWER = "price", "power"
"""What orders the kinds of hardware that keep the limits: the price of an hour, or the GPUs' design power."""


class LoadPoint(Struct, frozen=True):
    """Latencies [s] of the service at another load, on the same GPUs.

    load : of all replicas, in the unit of the load that was asked for: requests/s, requests in flight, or users
    judged : at the percentile that limits are compared with; null where requests do not come by chance
    """

    load: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    request_s: float
    judged: LatencyAt | None = None


class KeptLoad(Struct, frozen=True):
    """The highest rate, of all replicas, at which a service without a load keeps objectives at the percentile.

    max_ttft_s : a second where some load keeps it, else that of the default objectives; max_tpot_s : of these [s]
    requests_per_s : 0 where no load keeps both
    """

    max_ttft_s: float
    max_tpot_s: float
    percentile: float
    requests_per_s: float


class DayHour(Struct, frozen=True):
    """One hour of a day: its load, the replicas that it needs, and latencies as limits are compared with [s].

    hour : from 0; share : of the load of the hour with the most; load : in the unit of the load that was asked for
    """

    hour: int
    share: float
    load: float
    requests_per_s: float
    replicas: int
    gpus: int
    ttft_s: float | None
    tpot_s: float | None
    meets_limits: bool


class Day(Struct, frozen=True):
    """A day on replicas that are started and stopped with the load, beside as many as its peak needs all day.

    requests : of the day; gpu_hours : with the time that replicas take to start; cost : of them, null without a price
    replica_start_s : from starting a replica to its first answer [s]
    """

    hours: tuple[DayHour, ...]
    requests: float
    gpu_hours: float
    peak_gpu_hours: float
    cost: float | None
    peak_cost: float | None
    currency: str
    replica_start_s: float
    meets_limits: bool


class ServeResult(Answer, frozen=True, kw_only=True):
    """The service, with everything of all replicas together but `layout`, `memory`, `kv_cache` and `per_replica`.

    fleet_order : price or power; empty where one kind of hardware was asked for
    cautions : what a reader must know to read the verdict right, such as what a failure stops; also among the warnings
    misread : limits that are read in seconds and look like milliseconds, in words; the first of the warnings
    images : in each prompt; null where there are none
    slice : of a GPU that each replica runs on; null where replicas have whole GPUs
    encoders : that encode images on GPUs of their own; null where replicas encode theirs
    experts : on several ranks of a replica; null where none are
    kept_load : what a service without a load would keep, so that nothing is judged; null where there is a load
    day : hours of different load; null where nobody gives them
    test : of so many requests; null where the service goes on for ever, and latencies are those of its steady state
    read_from_name : the format of weights that the name of the model alone says, in words; empty where none does
    """

    question: ClassVar[str] = "serve"
    minimum_keeps: ClassVar[tuple[str, ...]] = ()

    tool_version: str
    scenario: dict[str, Any]
    verdict: Verdict
    gpus: Gpus
    layout: ReplicaLayout
    memory: ServeMemory
    latency: Latency
    throughput: Throughput
    kv_cache: KvCache
    replicas: Replicas
    per_replica: PerReplica | None = None
    cost: ServeCost
    phases: Phases
    images: Images | None = None
    experts: ServedExperts | None = None
    test: Benchmark | None = None
    fleet: tuple[FleetOption, ...] = ()
    fleet_order: str = ""
    left_out: tuple[LeftOut, ...] = ()
    pareto: tuple[ParetoPoint, ...] = ()
    load_curve: tuple[LoadPoint, ...] = ()
    kept_load: KeptLoad | None = None
    day: Day | None = None
    disaggregation: Disaggregation | None = None
    encoders: ImageEncoders | None = None
    adapters: Adapters | None = None
    speculation: Speculation | None = None
    session_cache: SessionCache | None = None
    session_turns: SessionTurns | None = None
    fit: Fit | None = None
    slice: GpuSlice | None = None
    advice: tuple[Advice, ...] = ()
    cautions: tuple[str, ...] = ()
    misread: tuple[str, ...] = ()
    read_from_name: str = ""
    warnings: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def ok(self) -> bool:
        return self.verdict.ok

    @property
    def currency(self) -> str:
        return self.cost.currency

    @property
    def writes(self) -> bool:
        """Whether answers have tokens; else they are embeddings or scores."""
        return (self.scenario.get("serve") or {}).get("output_tokens") != 0

    @property
    def compared(self) -> dict[str, Any]:
        """By what two runs of one scenario are compared, beside GPUs and memory."""
        price = self.cost.per_hour
        priced = {} if price is None else {"price": price, "currency": self.cost.currency}
        if not self.writes:
            return {"total_s": self.latency.request_s.expected, **priced}
        return {"tpot_s": self.latency.tpot_s.expected, **priced}

    @property
    def parts_s(self) -> dict[str, dict[str, float]]:
        """Seconds of the parts of a step of each kind."""
        steps = {"decode step": self.phases.decode, "step with prefill": self.phases.prefill}
        if not self.writes:
            steps = {"step": self.phases.prefill}
        return {name: {part.name: part.seconds for part in step.components} for name, step in steps.items()}

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return (self.cost.hourly_price, *(one.hourly_price for one in self.fleet))
