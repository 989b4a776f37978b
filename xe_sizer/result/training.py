"""What an estimate says: frozen, in SI units, with the names of the JSON contract (docs/reference/result.md).

Field names are the contract: add, never rename, within schema version 1. Components of memory sum to
`peak_bytes`, components of time to `step_s.expected`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from xe_sizer.result.common import (
    Advice,
    Answer,
    Basis,
    CostPart,
    Gpus,
    HourlyPrice,
    Ledger,
    OperatorCost,
    Range,
    Source,
    Struct,
    TimeComponent,
    Verdict,
)


class Layout(Struct, frozen=True):
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    dp: int
    zero: int
    micro_batch: int
    grad_accum: int
    recompute: str
    offload: str
    sequence_parallel: bool
    schedule: str = "1f1b"
    zero_group: int = 0
    expert_tp: int = 0


class Holding(Struct, frozen=True):
    """What a GPU holds of one kind: weights, gradients, optimizer states, activations and so on."""

    name: str
    bytes: float


class MomentMemory(Struct, frozen=True):
    """Memory of the worst GPU at one moment of the step; `holds` sums to its bytes."""

    name: str
    bytes: float
    holds: tuple[Holding, ...] = ()


class StageMemory(Struct, frozen=True):
    """Memory of the GPUs of one pipeline stage at the moment at which they hold most; `holds` sums to the peak.

    stage : counted from 1; layers : of the model, in the mean where a rank has layers of two stages
    micro_batches : whose activations it holds at most, in the mean over its layers
    """

    stage: int
    layers: float
    micro_batches: float
    peak_bytes: float
    phase: str
    holds: tuple[Holding, ...]


class Memory(Ledger, frozen=True):
    """Memory of a training job; `gpu` names the pipeline stage.

    `peak_bytes` and the components are cautious, as the verdict needs them. What a run usually shows: `allocated_bytes`
    of live tensors, `reserved_bytes` of the allocator, `device_bytes` on the whole card (nvidia-smi); `cached_bytes` of
    both are blocks kept from batches of other lengths, given back before the card is full. `error_share` is
    how far the tensors may be off; `moments` is the step from forward to optimizer, `stages` every stage of a pipeline;
    `trainable_parameters` counts what gets gradients in the whole model. `host_bytes` is offloaded,
    `host_available_bytes` what a node has; of that `host_reserve_bytes` are the system's.
    """

    host_bytes: float = 0.0
    host_available_bytes: float | None = None
    host_reserve_bytes: float = 0.0
    allocated_bytes: float = 0.0
    reserved_bytes: float = 0.0
    device_bytes: float = 0.0
    cached_bytes: float = 0.0
    error_share: float = 0.0
    trainable_parameters: int = 0
    moments: tuple[MomentMemory, ...] = ()
    stages: tuple[StageMemory, ...] = ()


class Loss(Struct, frozen=True):
    """Part of a step that the speed of light would not take."""

    name: str
    seconds: float
    share: float


class ModuleTime(Struct, frozen=True):
    name: str
    forward_s: float
    backward_s: float


class Time(Struct, frozen=True):
    """Time of an optimizer step and of the whole job. `bound` names what limits the step.

    mfu counts the FLOPs that training on the processed tokens needs, with those of passes through frozen weights, hfu
    also those of recomputation.
    `evidence` says what the ranges rest on, `basis` the same in figures, `calibrated` whether that is measurements.
    `ideal_step_s` is the step of the same layout at the speed of light (peaks reached, exchanges hidden, nothing
    offloaded), `losses` where the rest goes, largest first; None and empty where fixed efficiencies were asked for.
    `operators` is the step of the stage that decides, operator by operator; empty where nobody asked for it.
    `start_up_s` passes before the first step and is no part of `total_s`.
    `run` is what `total_s.expected` is the sum of, where checkpoints, evaluations or failures come between the steps;
    `goodput` is the share of it that the steps take, counted once.
    """

    step_s: Range
    components: tuple[TimeComponent, ...]
    modules: tuple[ModuleTime, ...]
    steps: int
    total_s: Range
    tokens_per_s_per_gpu: float
    samples_per_s: float
    mfu: float
    hfu: float
    bound: str
    calibrated: bool
    evidence: str
    ideal_step_s: float | None = None
    losses: tuple[Loss, ...] = ()
    basis: Basis | None = None
    operators: tuple[OperatorCost, ...] = ()
    start_up_s: float | None = None
    run: tuple[TimeComponent, ...] = ()
    goodput: float | None = None


class Checkpoint(Struct, frozen=True):
    """A checkpoint of everything that learns, with its optimizer's states, and how often the run is saved.

    pause_s : that training stands still for one; save_s : until all of it is in storage
    every_steps, count : between checkpoints, and of them; None and 0 where the run has none
    best_every_steps, mean_time_between_failures_s : where failures are expected, else None
    """

    bytes: float
    weights_bytes: float
    optimizer_bytes: float
    pause_s: float
    save_s: float
    write_bytes_per_s: float
    asynchronous: bool = False
    every_steps: int | None = None
    count: int = 0
    best_every_steps: int | None = None
    mean_time_between_failures_s: float | None = None


class Phase(Struct, frozen=True):
    """One phase of an iteration of reinforcement learning; the components sum to its seconds.

    share : of the iteration, 0 where it is `hidden` behind the longer work of another pool
    gpus : at work in it; peak_bytes : of the fullest of them, what it `holds` sums to that
    bound : the part that takes longest
    pool : whose GPUs do it, empty where all do that train or write; start_s : after the beginning of an iteration
    """

    name: str
    seconds: float
    share: float
    gpus: int
    peak_bytes: float
    usable_bytes: float
    bound: str
    hidden: bool = False
    components: tuple[TimeComponent, ...] = ()
    holds: tuple[Holding, ...] = ()
    pool: str = ""
    start_s: float = 0.0


class Pool(Struct, frozen=True):
    """GPUs that do the same work in an iteration: `trainer` or `rollout`; one pool of both is `trainer and rollout`.

    Others are `critic`, `critic and reward model`, `reward model` and `reference model`, where these have GPUs of their
    own.
    layout : of its ranks; None where engines alone are at work
    replicas, tp, pp, ep, engine : that write or rate answers; 0 replicas where there is no engine
    idle_share : of an iteration in which its GPUs wait for other pools
    model : beside the one that learns, empty where the pool is for that
    """

    name: str
    gpus: int
    nodes: int
    peak_bytes: float
    idle_share: float
    layout: Layout | None = None
    replicas: int = 0
    tp: int = 0
    pp: int = 0
    ep: int = 0
    engine: str = ""
    model: str = ""


class Tools(Struct, frozen=True):
    """What responses wait for between their turns, and the CPUs of it.

    turns, calls : of a response, mean; wait_s : for its calls
    calls_at_once, environments_at_once : while all replicas are full: calls that are made, responses under way
    cores, servers : that these calls take, and servers of `server_cores` for them
    exposed_s : of an iteration, in which nothing else is generated meanwhile; share : of the rollout
    """

    turns: float
    calls: float
    wait_s: float
    calls_at_once: float
    environments_at_once: float
    cores: float
    servers: int
    server_cores: float
    exposed_s: float
    share: float


class Iteration(Struct, frozen=True):
    """What one iteration of reinforcement learning makes, of `count` in the run.

    answers, trained_answers : written, and of these trained on, in `optimizer_steps`
    input_tokens, output_tokens : mean of a prompt and of an answer; longest_tokens : of the longest answer expected
    cut_share : of the answers that reach `max_output_tokens`
    tokens : of prompts and answers that are trained on, each as often as it is
    output_tokens_per_s : that all replicas write, over the rollout
    answers_at_once : that a replica writes while it is full
    waiting_share : of the rollout lost as the longest answers end last
    idle_share : of the GPU time of an iteration in which GPUs wait, for the longest answers or for the other pool
    update : what answers under way do when new weights come: `drain`, `abort` or `in-flight`; empty where none are
    tools : that answers wait for; None where they are written in one turn
    """

    count: int
    seconds: Range
    prompts: float
    group: int
    answers: float
    trained_answers: float
    optimizer_steps: int
    input_tokens: float
    output_tokens: float
    longest_tokens: float
    max_output_tokens: float
    cut_share: float
    tokens: float
    output_tokens_per_s: float
    answers_at_once: float
    waiting_share: float
    idle_share: float
    colocated: bool
    asynchronous: bool = False
    max_staleness: int = 0
    gpu_memory_utilization: float = 0.0
    sleep: str = ""
    update: str = ""
    tools: Tools | None = None


class Data(Struct, frozen=True):
    """Samples and tokens of the whole job.

    samples : in the data set; samples_read : that the steps read, each as often as it comes
    epochs : passes over the data set; None where its size is not known
    sequences_per_sample : 2 where samples are pairs of answers
    sequence_tokens : what one sequence takes in time; longest_tokens : the longest that memory must hold
    """

    samples: int
    real_tokens: float
    processed_tokens: float
    padding_share: float
    sequence_tokens: float
    longest_tokens: float
    padding: str
    samples_read: float | None = None
    epochs: float | None = None
    sequences_per_sample: int = 1


class SampleImages(Struct, frozen=True):
    """Images of a sample, and what becomes of them.

    pieces_each : that the encoder sees apart of an image; patches_each : of all of them
    tokens_each : of the language model for one image; tokens : for those of a sample
    """

    per_sample: int
    size: str
    pieces_each: int
    patches_each: int
    tokens_each: int
    tokens: int


class TrainedPart(Struct, frozen=True):
    """A part of a model that sees: its parameters, those that get gradients, and whether these are adapters."""

    name: str
    parameters: int
    trainable_parameters: int
    adapters: bool = False


class Beside(Struct, frozen=True):
    """Weights that stand frozen beside the model that learns, or passes through its own.

    model : name of the model whose weights they are; copies : of them that GPUs hold beside it
    passes : of every sequence, forward alone; beforehand : they take place once, before the training
    bytes : on the worst GPU; seconds : of a step, or of the run where they take place before it
    """

    name: str
    model: str
    copies: int
    passes: int
    beforehand: bool
    bytes: float
    seconds: float


class Price(Struct, frozen=True):
    currency: str
    low: float
    expected: float
    high: float


class Cost(Struct, frozen=True):
    """`energy_formula` says in words what the energy counts; `hourly_price` what the price rests on.

    parts : of the expected price where servers are owned, which they sum to; else empty
    electricity : for servers and cooling, where its price is given: a part of the cost of servers that are owned, and
    beside the price of those that are rented, which includes it
    power_w : of the servers at load, without cooling [W]; null where nobody knows what they draw
    """

    gpu_hours: Range
    energy_kwh: float | None
    price: Price | None
    energy_formula: str = ""
    hourly_price: HourlyPrice | None = None
    parts: tuple[CostPart, ...] = ()
    electricity: Price | None = None
    power_w: float | None = None


FitQuestion = Literal["context", "micro-batch", "rank", "model"]


class Fit(Struct, frozen=True):
    """The largest of what was looked for that fits as likely as was asked, and the next larger.

    value, next_value : tokens of context, sequences, a rank, or a model's name; next_value is None where there is none
    bound : what stands in the way of the next: memory, layout (no way to split it), positions (of the model), batch
    (the whole of it is one micro-batch), width (of the model), or catalogue
    """

    question: FitQuestion
    value: int | str
    probability: float
    bound: str
    next_value: int | str | None = None
    next_peak_bytes: float | None = None
    next_probability: float | None = None


class Result(Answer, frozen=True, kw_only=True):
    """`cautions` are what a reader must know to read the verdict and the time right; they stand beside both.

    phases, pools, iteration : of reinforcement learning, whose step is an iteration; else empty
    """

    question: ClassVar[str] = "estimate"
    minimum_keeps: ClassVar[tuple[str, ...]] = ("tp", "pp", "cp")
    misread: ClassVar[tuple[str, ...]] = ()

    tool_version: str
    scenario: dict[str, Any]
    verdict: Verdict
    gpus: Gpus
    layout: Layout
    memory: Memory
    time: Time
    data: Data
    cost: Cost
    checkpoint: Checkpoint | None = None
    fit: Fit | None = None
    phases: tuple[Phase, ...] = ()
    pools: tuple[Pool, ...] = ()
    iteration: Iteration | None = None
    beside: tuple[Beside, ...] = ()
    images: SampleImages | None = None
    parts: tuple[TrainedPart, ...] = ()
    advice: tuple[Advice, ...] = ()
    warnings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def ok(self) -> bool:
        return self.verdict.ok

    @property
    def currency(self) -> str | None:
        """Of the price, else that of the scenario."""
        if self.cost.price is not None:
            return self.cost.price.currency
        return (self.scenario.get("cost") or {}).get("currency")

    @property
    def compared(self) -> dict[str, Any]:
        """By what two runs of one scenario are compared, beside GPUs and memory."""
        if not self.verdict.fits:
            return {}
        price = self.cost.price
        priced = {} if price is None else {"price": price.expected, "currency": price.currency}
        return {"total_s": self.time.total_s.expected, **priced}

    @property
    def parts_s(self) -> dict[str, dict[str, float]]:
        """Seconds of the parts of a step over the whole job."""
        return {"": {part.name: part.seconds * self.time.steps for part in self.time.components}}

    @property
    def hourly_prices(self) -> tuple[HourlyPrice | None, ...]:
        return (self.cost.hourly_price,)
