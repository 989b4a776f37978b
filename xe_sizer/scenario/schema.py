"""The scenario file: every key, its unit and its range. All keys but `model` may be left out."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, TypedDict

import msgspec
from msgspec import Meta, field

from xe_sizer.graph.inputs import Fp8Recipe
from xe_sizer.graph.operators import ContextKind, PipelineSchedule, loss_names
from xe_sizer.graph.recompute import RecomputeModule
from xe_sizer.laws.device import loaded_in, other_precisions, trained_in
from xe_sizer.profiles.convert import RANGE, json_schema, named, or_else
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.profiles.model import InlineModel
from xe_sizer.scenario.quantities import QUANTITY, takes_unit
from xe_sizer.software.number_formats import cache_format_names, format_names, other_formats
from xe_sizer.software.stack import sleep_names

# Annotations are no text here (`from __future__`): that of every key would be compiled in each start of the command.

# Jobs and kinds of adapters that a scenario may name: the training methods, and inference; what learns beside them.
#
# Methods and adapters stand above scenarios and say here what they are called.

INFERENCE = "inference"
"""The one job that is no training."""
NO_ADAPTERS = "none"
"""Where the model's own weights learn."""


class _Kind(Protocol):
    @property
    def aliases(self) -> tuple[str, ...]: ...


_TRAINED: list[Mapping[str, _Kind]] = []
_ADAPTERS: list[Mapping[str, _Kind]] = []


def trains(methods: Mapping[str, _Kind], adapters: Mapping[str, _Kind]) -> None:
    """Make known training methods and kinds of adapters by their names; the mappings may still grow."""
    _TRAINED.append(methods)
    _ADAPTERS.append(adapters)


def job_names() -> tuple[str, ...]:
    """All jobs that are known."""
    return (*(name for names in _TRAINED for name in names), INFERENCE)


def job_aliases() -> dict[str, str]:
    """What else people call the jobs."""
    return _aliases(_TRAINED) | dict.fromkeys(("serve", "serving"), INFERENCE)


def adapter_names() -> tuple[str, ...]:
    """All kinds of adapters that are known, and none."""
    return (*(name for names in _ADAPTERS for name in names), NO_ADAPTERS)


def adapter_aliases() -> dict[str, str]:
    """What else people call the adapters."""
    return _aliases(_ADAPTERS) | dict.fromkeys(("full", "false"), NO_ADAPTERS)


def _aliases(groups: list[Mapping[str, _Kind]]) -> dict[str, str]:
    return {alias: name for kinds in groups for name, kind in kinds.items() for alias in kind.aliases}


# What values of a scenario may be, and the base of its sections.

# The upper ends are far above any real job; they keep a slip of the keyboard from becoming an overflow later.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x1f]*$",
        extra={"must": "have no control characters"},
    ),
]
PlainName = Annotated[
    str, Meta(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", extra={"must": "be a name, no path"})
]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$", extra={"must": "be three capital letters such as USD"})]
Degree = Annotated[int, Meta(ge=1, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Tokens = Annotated[int, Meta(ge=1, le=10**9)]
MeanTokens = Annotated[float, Meta(ge=1, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[
    float,
    Meta(ge=0.5, lt=1, extra={RANGE: "be at least 0.5, where the expected value decides, and less than 1"}),
]
DropoutRate = Annotated[float, Meta(ge=0, lt=1)]
FailureRate = Annotated[float, Meta(ge=0, le=1000)]
ImageSize = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$", extra={"must": "be width x height, such as 1024x1024"})
]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts of a scenario file."""


# The section `limits` of a scenario file: what the answer must keep.


def judged(description: str, of: str, *, wing: str | None = None, option: str | None = None, most: bool = True) -> Meta:
    """A row of the table of limits, beside its key and its range.

    of : quantity of an estimate that the limit bounds, from above or, where not `most`, from below
    wing : training or serving, where only one of them has the quantity; option : where the key names it otherwise
    """
    return Meta(description=description, extra={"of": of, "wing": wing, "option": option, "most": most})


class LimitsSection(Section, frozen=True):
    """What the answer must keep; a broken limit is exit code 1."""

    max_hours: Annotated[Positive | None, judged("Maximum time of the run in hours", "hours", wing="training")] = None
    max_cost: Annotated[
        Positive | None, judged("Maximum price of the run, in the currency of cost", "cost", wing="training")
    ] = None
    max_ttft_s: Annotated[
        Positive | None,
        judged("Maximum time to first token (TTFT) in seconds", "ttft_s", wing="serving", option="ttft"),
    ] = None
    max_tpot_s: Annotated[
        Positive | None,
        judged("Maximum time per output token (TPOT) in seconds", "tpot_s", wing="serving", option="tpot"),
    ] = None
    max_cost_per_million_tokens: Annotated[
        Positive | None,
        judged("Maximum price per million output tokens", "cost_per_million_tokens", wing="serving"),
    ] = None
    max_gpus: Annotated[Degree | None, judged("Maximum number of GPUs", "gpus")] = None
    min_headroom_gib: Annotated[
        NotNegative | None, judged("Memory left free per GPU in GiB", "headroom_gib", most=False)
    ] = None
    confidence: Annotated[
        Confidence | None,
        Meta(description="Required probability that limits hold and memory suffices; default: 0.5, the expected value"),
    ] = None


class LimitsKeys(TypedDict, total=False):
    """The limits as keyword arguments of the public API, for who reads or checks a call of it."""

    max_hours: float | None
    max_cost: float | None
    max_ttft_s: float | None
    max_tpot_s: float | None
    max_cost_per_million_tokens: float | None
    max_gpus: int | None
    min_headroom_gib: float | None
    confidence: float | None


# The section `serve` of a scenario file: the load of a service, its lengths, formats and the engine's settings.

LOADS = ("request_rate", "concurrency", "users", "batch")  # keys of `serve`, of which a scenario has at most one
NumberFormat = Annotated[str, named(format_names, other_formats)]
CacheFormat = Annotated[str, named(cache_format_names, other_formats)]
Percentile = Annotated[float, Meta(ge=50, le=99.9)]
Iterations = Annotated[int, Meta(ge=0, le=1_000_000)]
Arrivals = Annotated[Literal["poisson", "constant"], or_else(random="poisson", even="constant", uniform="constant")]
Spares = Annotated[int, Meta(ge=0, le=1_000)]
Spread = Annotated[float, Meta(ge=0, le=20)]


class ServeSection(Section, frozen=True):
    """What is served: the load, its lengths, number formats and the engine's settings."""

    engine: Annotated[Name | None, Meta(description="Inference engine, e.g. vllm, or the path of an engine file")] = (
        None
    )
    request_rate: Annotated[Positive | None, Meta(description="Requests per second, all replicas together")] = None
    concurrency: Annotated[Degree | None, Meta(description="Requests in flight, all replicas together")] = None
    users: Annotated[
        Degree | None, Meta(description="People who send a request, read the answer and send the next")
    ] = None
    think_time_s: Annotated[
        Positive | None, Meta(description="Seconds between an answer and the user's next request; default: 30")
    ] = None
    batch: Annotated[
        Degree | None,
        Meta(description="Requests that each replica starts together and runs to completion (a benchmark)"),
    ] = None
    requests: Annotated[
        Degree | None,
        Meta(
            description="Number of requests in a benchmark: sent all at once, at the rate or at the concurrency; "
            "latencies are those of the benchmark"
        ),
    ] = None
    arrivals: Annotated[
        Arrivals | None,
        Meta(description="Arrivals of a benchmark's requests at a rate: at random (default) or evenly spaced"),
    ] = None
    trace: Annotated[
        Name | None,
        Meta(description="File of requests to replay: timestamp, prompt and output tokens; CSV or JSON Lines"),
    ] = None
    input_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt, without its images' tokens")
    ] = None
    output_tokens: Annotated[MeanTokens | None, Meta(description="Mean output tokens of a request")] = None
    input_spread: Annotated[Spread | None, Meta(description="Standard deviation of prompt lengths / mean")] = None
    output_spread: Annotated[Spread | None, Meta(description="Standard deviation of output lengths / mean")] = None
    images: Annotated[
        Annotated[int, Meta(ge=0, le=1_000)] | None, Meta(description="Images in each prompt; 0: text only")
    ] = None
    image_size: Annotated[ImageSize | None, Meta(description="Width and height of an image, e.g. 1024x1024")] = None
    prefix_hit_share: Annotated[Share | None, Meta(description="Share of prompt tokens found in the prefix cache")] = (
        None
    )
    fit: Annotated[
        Literal["context", "sessions"] | None,
        Meta(description="Find the longest context at the concurrency, or the most sessions of the given length"),
    ] = None
    kv_host_gib: Annotated[
        NotNegative | None,
        Meta(description="Host memory for the KV cache of a replica, for returning users, in GiB; 0: GPU memory only"),
    ] = None
    draft_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | None, Meta(description="Tokens that speculative decoding proposes per step")
    ] = None
    acceptance_rate: Annotated[Share | None, Meta(description="Probability that a proposed token is accepted")] = None
    draft_cost: Annotated[
        Share | None, Meta(description="Time to draft one token as a share of the time of a step")
    ] = None
    weights: Annotated[NumberFormat | None, Meta(description="Number format of the weights")] = None
    activations: Annotated[NumberFormat | None, Meta(description="Number format of the activations")] = None
    kv_cache: Annotated[CacheFormat | None, Meta(description="Number format of the KV cache")] = None
    scheme: Annotated[
        Name | None, Meta(description="Bits of weights, activations and KV cache, e.g. w4a16k8; instead of formats")
    ] = None
    gpu_memory_utilization: Annotated[
        Fraction | None, Meta(description="Share of the GPU memory that the engine may use")
    ] = None
    max_sequences: Annotated[Degree | None, Meta(description="Maximum requests in one step of a replica")] = None
    max_model_len: Annotated[
        Tokens | None,
        Meta(description="Longest prompt plus answer that the engine accepts; default: the model's maximum"),
    ] = None
    max_step_tokens: Annotated[Degree | None, Meta(description="Maximum tokens in one step of a replica")] = None
    scheduler_recv_interval: Annotated[
        Degree | None, Meta(description="Decode steps between the scheduler's checks for new requests (SGLang)")
    ] = None
    batch_wait_iters: Annotated[
        Iterations | None,
        Meta(description="Decode steps for which prompts wait to be batched with others (TensorRT-LLM)"),
    ] = None
    objective: Annotated[
        Literal["throughput", "latency"] | None,
        Meta(description="What the placement is chosen for: throughput or latency; default: depends on the load"),
    ] = None
    hourly_load: Annotated[
        Annotated[tuple[NotNegative, ...], Meta(min_length=24, max_length=24)] | None,
        Meta(description="Load of the 24 hours of a day, from midnight, in any unit: the given load is the highest"),
    ] = None
    replica_start_s: Annotated[
        NotNegative | None,
        Meta(description="Seconds until a new replica is ready; default: weights read at 2 GB/s per server, plus 60 s"),
    ] = None
    percentile: Annotated[Percentile | None, Meta(description="Percentile at which latency limits must hold")] = None
    adapters: Annotated[
        Degree | None,
        Meta(description="LoRA adapters that requests use, each equally often; see lora.rank and targets"),
    ] = None
    adapter_slots: Annotated[
        Degree | None, Meta(description="Adapters held on the GPU at once, and thus the most in a step; default: all")
    ] = None
    prefill_replicas: Annotated[
        Degree | Literal["auto"] | None,
        Meta(description="Replicas that only prefill, while the others only decode; auto: the best number of both"),
    ] = None
    prefill_tp: Annotated[Degree | None, Meta(description="Tensor-parallel ranks of a prefill replica")] = None
    prefill_pp: Annotated[Degree | None, Meta(description="Pipeline stages of a prefill replica")] = None
    prefill_ep: Annotated[Degree | None, Meta(description="Expert-parallel ranks of a prefill replica")] = None
    prefill_dp: Annotated[Degree | None, Meta(description="Attention groups of a prefill replica")] = None
    spare_replicas: Annotated[Spares | None, Meta(description="Extra replicas in case of failures")] = None


# The section `rollout` of a scenario file: how a reinforcement-learning job writes and rates its answers.

Oversampling = Annotated[float, Meta(ge=1, le=100)]
Sleep = Annotated[str, named(sleep_names)]


class RolloutSection(Section, frozen=True):
    """How answers are written and rated between the optimizer steps of reinforcement learning."""

    engine: Annotated[
        Name | None, Meta(description="Inference engine that writes the answers, e.g. vllm; default: the stack's")
    ] = None
    prompts: Annotated[Degree | None, Meta(description="Prompts of an iteration")] = None
    group: Annotated[Degree | None, Meta(description="Answers to each prompt")] = None
    input_tokens: Annotated[Positive | None, Meta(description="Mean tokens of a prompt")] = None
    output_tokens: Annotated[NotNegative | None, Meta(description="Mean tokens of an answer")] = None
    max_output_tokens: Annotated[Tokens | None, Meta(description="Tokens at which answers are cut")] = None
    output_spread: Annotated[
        Spread | None, Meta(description="Standard deviation of answer lengths / mean, before the cut")
    ] = None
    oversampling: Annotated[
        Oversampling | None, Meta(description="Answers written for each that is trained on (dynamic sampling)")
    ] = None
    updates: Annotated[Degree | None, Meta(description="Passes over the answers of an iteration (PPO epochs)")] = None
    colocated: Annotated[
        bool | None, Meta(description="Write answers on the GPUs that train, in turn; else on GPUs of their own")
    ] = None
    gpus: Annotated[Degree | None, Meta(description="GPUs that only write answers")] = None
    tp: Annotated[Degree | None, Meta(description="Tensor-parallel GPUs of a replica that writes answers")] = None
    pp: Annotated[Degree | None, Meta(description="Pipeline stages of a replica that writes answers")] = None
    ep: Annotated[Degree | None, Meta(description="Expert-parallel GPUs of a replica that writes answers")] = None
    gpu_memory_utilization: Annotated[
        Fraction | None, Meta(description="Share of the GPU memory that the engine may use while answers are written")
    ] = None
    weights: Annotated[NumberFormat | None, Meta(description="Number format of the weights that write answers")] = None
    kv_cache: Annotated[CacheFormat | None, Meta(description="Number format of the engine's KV cache")] = None
    max_sequences: Annotated[Degree | None, Meta(description="Maximum answers that a replica writes at once")] = None
    sleep: Annotated[Sleep | None, Meta(description="What the engine gives back between the phases on shared GPUs")] = (
        None
    )
    offload: Annotated[
        Literal["none", "optimizer", "params"] | None,
        Meta(description="What the trainer leaves to host memory while answers are written; params: all states"),
    ] = None
    asynchronous: Annotated[
        bool | None, Meta(description="Write the next answers while training on these, on GPUs of their own")
    ] = None
    max_staleness: Annotated[
        Degree | None, Meta(description="Iterations by which answers may be older than the weights; default: 1")
    ] = None
    partial: Annotated[
        bool | None, Meta(description="Long answers are interrupted and go on in the next iteration")
    ] = None
    verifier_s: Annotated[NotNegative | None, Meta(description="CPU seconds that rating one answer takes")] = None
    verifier_workers: Annotated[
        Degree | None, Meta(description="Answers rated at once, by as many CPU processes; default: 8 per GPU")
    ] = None


Job = Annotated[str, named(job_names, job_aliases)]
Adapter = Annotated[str, named(adapter_names, adapter_aliases)]
Precision = Annotated[str, named(trained_in, other_precisions)]
Attention = Annotated[
    Literal["flash", "sdpa", "eager"],
    or_else(flashattention="flash", flashattention2="flash", flashattn="flash", flashattn2="flash", fa2="flash"),
]
Loss = Annotated[str, named(loss_names)]
CpKind = Annotated[ContextKind, or_else(p2p="ring", allgather="all-gather", a2a="ulysses", a2ap2p="hybrid")]
Padding = Annotated[
    Literal["packed", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len", "grouped-by-length", "none"],
    or_else(packing="packed", samplepacking="packed", maxlength="to-seq-len"),
]
Recompute = Annotated[Literal["none", "selective", "full"], or_else(true="full", false="none")]
Offload = Annotated[
    Literal["none", "optimizer", "params", "activations", "optimizer+activations", "params+activations"],
    or_else(
        false="none",
        optimizerstates="optimizer",
        parameters="params",
        param="params",
        optimizerparams="params",
        paramsoptimizer="params",
        activation="activations",
        activationsoptimizer="optimizer+activations",
        activationsparams="params+activations",
        optimizerparamsactivations="params+activations",
    ),
]
Zero = Annotated[
    Literal[0, 1, 2, 3],
    or_else(
        ddp=0, noshard=0, zero0=0, zero1=1, stage1=1, zero2=2, stage2=2, shardgradop=2,
        zero3=3, stage3=3, fsdp=3, fsdp2=3, fullshard=3,
    ),
]  # fmt: skip
Schedule = Annotated[
    PipelineSchedule,
    or_else(
        interleaved1f1b="1f1b-interleaved", interleaved="1f1b-interleaved", onefoneb="1f1b", afab="gpipe",
        allforwardallbackward="gpipe", zb1p="zb-h1", zbh1="zb-h1", zb2p="zb-h2", zbh2="zb-h2", zbv="zb-v", zbb="zb-v",
        zbvzerobubble="zb-v", vzb="zb-v", vhalf="v-half", vmin="v-min",
    ),
]  # fmt: skip
Fp8 = Annotated[
    Fp8Recipe,
    or_else(
        currentscaling="tensorwise", current="tensorwise", pertensor="tensorwise", float8currentscaling="tensorwise",
        axiswise="rowwise", perrow="rowwise", block="blockwise", subchannel="blockwise", float8blockscaling="blockwise",
        mx="mxfp8", mxfp8blockscaling="mxfp8", delayedscaling="delayed",
    ),
]  # fmt: skip
FrozenPart = Annotated[
    Literal["vision", "projector", "language", "none"],
    or_else(
        vit="vision", visiontower="vision", visionencoder="vision", visionmodel="vision", aligner="projector",
        merger="projector", connector="projector", multimodalprojector="projector", llm="language", lm="language",
        languagemodel="language",
    ),
]  # fmt: skip
Reference = Annotated[
    Literal["none", "copy", "precomputed", "adapters-off"],
    or_else(false="none", precompute="precomputed", precomputereflogprobs="precomputed", disableadapter="adapters-off"),
]
Task = Annotated[
    Literal["causal-lm", "seq-cls", "regression", "reranker", "generative-reranker"],
    or_else(
        causallm="causal-lm", textgeneration="causal-lm", seqcls="seq-cls", sequenceclassification="seq-cls",
        textclassification="seq-cls", classification="seq-cls", crossencoder="reranker",
    ),
]  # fmt: skip
Objective = Literal["servers", "gpus", "cost", "time", "energy"]


class Histogram(Section, frozen=True):
    """Token lengths of a data set, counted."""

    lengths: Annotated[tuple[Tokens, ...], Meta(min_length=1, description="Tokens of a sample, one per bin")]
    counts: Annotated[tuple[NotNegative, ...], Meta(min_length=1, description="Samples in each bin")]


class DataSection(Section, frozen=True):
    """What is trained on: a data set profile, a file of samples, a histogram, or statistics of the token lengths."""

    profile: Annotated[Name | None, Meta(description="Data set profile, or samples: train.jsonl")] = None
    file: Annotated[Name | None, Meta(description="Samples: JSON Lines, JSON or Parquet; their tokens are counted")] = (
        None
    )
    tokenizer: Annotated[Name | None, Meta(description="Counts the samples: tokenizer.json or its folder")] = None
    samples: Annotated[Count | None, Meta(description="Samples in the data set")] = None
    mean_tokens: Annotated[Positive | None, Meta(description="Mean tokens per sample, without padding")] = None
    chosen_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt with its chosen answer, where samples are pairs")
    ] = None
    rejected_tokens: Annotated[
        Positive | None, Meta(description="Mean tokens of a prompt with its rejected answer, where samples are pairs")
    ] = None
    min_tokens: Annotated[Tokens | None, Meta(description="Tokens of the shortest sample")] = None
    max_tokens: Annotated[Tokens | None, Meta(description="Tokens of the longest sample")] = None
    tokens: Annotated[Positive | None, Meta(description="Tokens of the whole data set, without padding")] = None
    histogram: Annotated[Histogram | None, Meta(description="Token lengths, counted")] = None
    images: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        Meta(description="Images of a sample, whose tokens come beside those of its text; default: none, no encoder"),
    ] = None
    image_size: Annotated[ImageSize | None, Meta(description="Width and height of its images, e.g. 1024x768")] = None


class TrainSection(Section, frozen=True):
    """How long to train and how batches are made."""

    steps: Annotated[Count | None, Meta(description="Optimizer steps; instead of epochs")] = None
    epochs: Annotated[Positive | None, Meta(description="Passes over the data set; instead of steps")] = None
    global_batch: Annotated[Degree | None, Meta(description="Sequences per optimizer step, all GPUs")] = None
    micro_batch: Annotated[Degree | None, Meta(description="Sequences per forward pass on each GPU")] = None
    grad_accum: Annotated[
        Degree | None, Meta(description="Micro-batches of each GPU per optimizer step (gradient accumulation)")
    ] = None
    seq_len: Annotated[Tokens | None, Meta(description="Longest sequence in tokens; longer samples are cut")] = None
    target_len: Annotated[
        Tokens | None,
        Meta(
            description="Tokens of the decoder's sequences; default: as T5 or BART pre-train, else a quarter of seq_len"
        ),
    ] = None
    padding: Annotated[Padding | None, Meta(description="What short samples are padded to")] = None
    task: Annotated[
        Task | None,
        Meta(description="What is read from the last layer; default: what the job reads, logits of the vocabulary"),
    ] = None
    weights_dtype: Annotated[
        Annotated[str, named(loaded_in, other_precisions)] | None,
        Meta(description="Number format that the weights are loaded and kept in"),
    ] = None
    backend: Annotated[
        PlainName | None,
        Meta(description="What shares states out, where the stack has several: deepspeed, fsdp"),
    ] = None
    fp8_recipe: Annotated[
        Fp8 | None, Meta(description="How operands in 8 bit are scaled, e.g. mxfp8; default: the stack's")
    ] = None
    fused_kernels: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Fused kernels in place of the stack's own, e.g. norm, rotary, activation, loss, liger, none"),
    ] = None
    quantiser: Annotated[
        Name | None, Meta(description="Library that holds frozen weights in few bits, e.g. bitsandbytes, or a file")
    ] = None
    bits: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None, Meta(description="Bits of a frozen weight, where it is quantised")
    ] = None
    trainable_layers: Annotated[
        Degree | None,
        Meta(description="Layers at the end of the model that learn, with the rest, embedding and head frozen"),
    ] = None
    experts_per_token: Annotated[
        Degree | None, Meta(description="Experts that each token goes through, if not as many as the model has")
    ] = None
    optimizer_rank: Annotated[
        Degree | None, Meta(description="Rank to which GaLore and APOLLO project gradients; default: the optimizer's")
    ] = None
    reference: Annotated[
        Reference | None,
        Meta(description="Where a reference's log-probabilities come from; default: a copy, or adapters off"),
    ] = None
    teacher_model: Annotated[
        Name | None, Meta(description="Model that teaches the student: a profile name or path, or a config.json")
    ] = None
    dropout: Annotated[
        DropoutRate | None, Meta(description="Share that dropout zeroes where the model has it; default: the stack's")
    ] = None
    reduce_every_micro_batch: Annotated[
        bool | None, Meta(description="Reduce gradients in every micro-batch, not once per step (ZeRO 2 and 3)")
    ] = None
    empty_cache_steps: Annotated[
        Count | None,
        Meta(description="Steps after which the allocator gives free memory back; default: never"),
    ] = None
    freeze: Annotated[
        Annotated[tuple[FrozenPart, ...], Meta(min_length=1)] | None,
        Meta(description="Parts of a model that sees which do not learn: vision, projector, language, or none"),
    ] = None
    checkpoint_every: Annotated[
        Count | None, Meta(description="Steps from one checkpoint to the next; the last step is saved too")
    ] = None
    async_checkpoint: Annotated[
        bool | None, Meta(description="Write checkpoints from host memory while training goes on")
    ] = None
    batch_ramp_up: Annotated[
        tuple[Degree, Degree, Count] | None,
        Meta(description="First global batch, what it grows by, and sequences until it is whole, e.g. 32,32,65536"),
    ] = None
    evaluate_every: Annotated[Count | None, Meta(description="Steps from one evaluation to the next")] = None
    evaluate_samples: Annotated[
        Count | None,
        Meta(description="Samples of one evaluation; default: 5 % of the data set, at most 100 global batches"),
    ] = None
    critic_model: Annotated[
        Name | None, Meta(description="Model that rates every token in PPO; default: the model itself")
    ] = None
    reward_model: Annotated[
        Name | None, Meta(description="Model that rates answers; default for ppo: the model itself; none: a verifier")
    ] = None
    failures_per_gpu_day: Annotated[
        FailureRate | None,
        Meta(description="Failures that stop the whole job, per GPU and day, e.g. 0.0005; default: none"),
    ] = None


class StorageSection(Section, frozen=True):
    """Where checkpoints go."""

    write_gb_per_s: Annotated[
        Positive | None, Meta(description="GB/s that storage takes from all nodes together; default: 2 for each node")
    ] = None


class LayoutSection(Section, frozen=True):
    """How the model is spread over GPUs; what is left out is chosen."""

    tp: Annotated[Degree | None, Meta(description="Tensor parallel GPUs")] = None
    pp: Annotated[Degree | None, Meta(description="Pipeline stages")] = None
    vpp: Annotated[Degree | None, Meta(description="Model chunks per pipeline stage (interleaving)")] = None
    cp: Annotated[Degree | None, Meta(description="Context parallel GPUs")] = None
    cp_kind: Annotated[CpKind | None, Meta(description="What context parallel GPUs exchange; default: the stack's")] = (
        None
    )
    ep: Annotated[Degree | None, Meta(description="Expert parallel GPUs")] = None
    expert_tp: Annotated[
        Degree | None,
        Meta(description="GPUs that split an expert; default: tp where ep allows"),
    ] = None
    dp: Annotated[
        Degree | None, Meta(description="Data parallel replicas; in serving: ranks that share only the experts")
    ] = None
    zero: Annotated[Zero | None, Meta(description="ZeRO stage; 3 is FSDP")] = None
    zero_group: Annotated[
        Degree | None, Meta(description="Data parallel ranks that share one copy of sharded states; default: all")
    ] = None
    schedule: Annotated[
        Schedule | None,
        Meta(description="Order of a pipeline's passes; default: 1f1b, interleaved where vpp is above 1"),
    ] = None
    uneven_stages: Annotated[bool | None, Meta(description="Let stages differ by a layer; the fullest decides")] = None
    stages: Annotated[
        Annotated[tuple[Annotated[int, Meta(ge=0, le=65_536)], ...], Meta(min_length=2)] | None,
        Meta(description="Layers of every pipeline stage, e.g. 7,8,8,7"),
    ] = None
    first_stage_layers: Annotated[
        Degree | None, Meta(description="Layers of the first pipeline stage; the others share the rest")
    ] = None
    last_stage_layers: Annotated[
        Degree | None, Meta(description="Layers of the last pipeline stage; the others share the rest")
    ] = None
    account_for_embedding: Annotated[
        bool | None, Meta(description="The embedding takes a layer's place on the first pipeline stage")
    ] = None
    account_for_loss: Annotated[
        bool | None, Meta(description="Head and loss take a layer's place on the last pipeline stage")
    ] = None
    sequence_parallel: Annotated[bool | None, Meta(description="Split norms and dropout over tp")] = None
    recompute: Annotated[Recompute | None, Meta(description="Activations recomputed in the backward pass")] = None
    recompute_modules: Annotated[
        Annotated[tuple[RecomputeModule, ...], Meta(min_length=1)] | None,
        Meta(description="Modules that selective recomputation runs again, e.g. moe, layernorm"),
    ] = None
    recompute_layers: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="Layers of a stage that full recomputation runs again"),
    ] = None
    offload: Annotated[Offload | None, Meta(description="What host memory keeps; weights take the optimizer along")] = (
        None
    )
    bucket_gib: Annotated[
        Positive | None, Meta(description="Buffer in which data-parallel ranks reduce gradients; default: the stack's")
    ] = None
    prefetch_elements: Annotated[
        NotNegative | None, Meta(description="Elements of weights that ZeRO 3 gathers ahead; DeepSpeed's own: 5e7")
    ] = None
    live_elements: Annotated[
        NotNegative | None,
        Meta(description="Gathered elements beyond which ZeRO 3 gathers nothing ahead; DeepSpeed's own: 1e9"),
    ] = None
    reuse_elements: Annotated[
        NotNegative | None,
        Meta(description="Elements within which a weight that is needed again stays gathered; DeepSpeed's own: 1e9"),
    ] = None
    persistent_elements: Annotated[
        NotNegative | None,
        Meta(description="Elements of the largest tensor that ZeRO 3 does not shard; DeepSpeed's own: 1e5"),
    ] = None
    offload_layers: Annotated[
        Degree | None, Meta(description="Layers of a stage whose activations are offloaded; default: all")
    ] = None
    offload_fraction: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="Share of the optimizer that an offload keeps in host memory; default: all"),
    ] = None


class LoraSection(Section, frozen=True):
    """Adapters of the jobs that have them."""

    rank: Annotated[Annotated[int, Meta(ge=1, le=65_536)] | None, Meta(description="Rank of the adapters")] = None
    targets: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Modules with adapters, e.g. qkv"),
    ] = None
    alpha: Annotated[
        Positive | None,
        Meta(description="Scale of the adapters times their rank; changes neither memory nor time: for export alone"),
    ] = None
    dropout: Annotated[DropoutRate | None, Meta(description="Share of an adapter's input that dropout zeroes")] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="Size of the blocks of adapters whose matrices are cut into such"),
    ] = None
    frequencies: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(description="Coefficients that learn of a weight's Fourier or wavelet transform"),
    ] = None
    dora: Annotated[bool | None, Meta(description="Adapters with magnitudes apart from directions (DoRA)")] = None
    modules_to_save: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        Meta(description="Modules that learn beside the adapters: embed_tokens, lm_head"),
    ] = None


class PTuningSection(Section, frozen=True):
    """The prompt encoder of prompt tuning."""

    virtual_tokens: Annotated[Degree | None, Meta(description="Virtual tokens before each sample")] = None
    encoder_hidden: Annotated[Degree | None, Meta(description="Hidden size of the prompt encoder")] = None


class EmbeddingSection(Section, frozen=True):
    """What embedding models compare while they learn."""

    hard_negatives: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None, Meta(description="Hard negatives of each query; default: none")
    ] = None
    across_gpus: Annotated[bool | None, Meta(description="Compare a query with the passages of all GPUs")] = None
    cached: Annotated[
        bool | None, Meta(description="Cached gradients: compare the passages of all micro-batches of a step")
    ] = None


class CostSection(Section, frozen=True):
    """What a GPU costs."""

    price_per_gpu_hour: Annotated[
        NotNegative | dict[str, NotNegative] | None,
        Meta(description="Price of one GPU for one hour; in a file also a price for each name of a GPU or server"),
    ] = None
    currency: Annotated[Currency | None, Meta(description="Currency of prices, e.g. USD")] = None


class EfficiencySection(Section, frozen=True):
    """Fixed fractions of the peaks instead of the operator laws."""

    flops: Annotated[Fraction | None, Meta(description="Fraction of the peak FLOP/s, above 0 to 1")] = None
    memory: Annotated[Fraction | None, Meta(description="Fraction of the memory bandwidth, above 0 to 1")] = None
    ideal: Annotated[bool | None, Meta(description="Both fractions are 1: the lower bound of time")] = None


class ScenarioFile(Section, frozen=True):
    """One question: a model, a job, its data, and the hardware or the limits."""

    model: Annotated[
        Name | InlineModel,
        Meta(description="Model: a profile name or path, or a Hugging Face config.json; in a file also its shape"),
    ]
    server: Annotated[Name | None, Meta(description="Server profile; instead of gpu")] = None
    gpu: Annotated[Name | None, Meta(description="Accelerator profile; instead of server")] = None
    gpus: Annotated[Degree | None, Meta(description="Number of GPUs; searched for if omitted")] = None
    nodes: Annotated[Degree | None, Meta(description="Number of servers")] = None
    host_memory_gib: Annotated[Positive | None, Meta(description="Host memory of a node in GiB, for offloading")] = None
    job: Annotated[Job | None, Meta(description="Job: a training method; inference is sized by serve")] = None
    adapter: Annotated[
        Adapter | None, Meta(description="What learns beside frozen weights, e.g. lora; none: all weights do")
    ] = None
    stack: Annotated[Name | None, Meta(description="Training framework, e.g. nemo, or the path of a stack file")] = None
    precision: Annotated[Precision | None, Meta(description="Number format of the matrix products")] = None
    optimizer: Annotated[Name | None, Meta(description="Optimizer, e.g. adamw, or the path of an optimizer file")] = (
        None
    )
    attention: Annotated[Attention | None, Meta(description="Attention kernel")] = None
    loss: Annotated[Loss | None, Meta(description="Cross-entropy kernel; fused never holds float32 logits")] = None
    objective: Annotated[
        Objective | None, Meta(description="What plan calls the best; servers where there is a deadline, else cost")
    ] = None
    partial_servers: Annotated[
        bool | None, Meta(description="Also try numbers of GPUs that leave part of a server unused")
    ] = None
    data: DataSection = field(default_factory=DataSection)
    train: TrainSection = field(default_factory=TrainSection)
    storage: StorageSection = field(default_factory=StorageSection)
    layout: LayoutSection = field(default_factory=LayoutSection)
    lora: LoraSection = field(default_factory=LoraSection)
    p_tuning: PTuningSection = field(default_factory=PTuningSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    cost: CostSection = field(default_factory=CostSection)
    efficiency: EfficiencySection = field(default_factory=EfficiencySection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    embedding: EmbeddingSection = field(default_factory=EmbeddingSection)
    serve: ServeSection = field(default_factory=ServeSection)


# The scenario file as a JSON Schema, by which editors complete and check it.


def scenario_json_schema() -> dict[str, Any]:
    """JSON Schema of the scenario file, for editors and CI.

    Keys that name profiles complete the built-in names and take any other name, path or repository; numbers with a
    unit may be text.
    """
    schema = json_schema(ScenarioFile)
    named_by = {kind.scenario_key: kind.name for kind in KINDS.values() if kind.scenario_key}
    for path, properties in _sections(schema):
        for key, found in properties.items():
            kind = named_by.get(".".join((*path, key)))
            if kind:
                _widen(found, "string", {"enum": list(BUILT_IN.names(kind))}, first=True)
            if takes_unit(key):
                for number in ("number", "integer"):
                    _widen(found, number, {"type": "string", "pattern": QUANTITY.pattern}, first=False)
    return schema


def _sections(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Properties of the file and of its sections, with the keys above them."""
    definitions = schema["$defs"]
    root = definitions[ScenarioFile.__name__]["properties"]
    yield (), root
    for key, found in root.items():
        for one in (found, *found.get("anyOf", ())):
            if "$ref" in one:
                yield (key,), definitions[one["$ref"].rpartition("/")[2]]["properties"]


def _widen(found: dict[str, Any], type_: str, other: dict[str, Any], *, first: bool) -> None:
    """Let a key of a type take something else too, before or after its own."""
    said = ("description", "default")
    arms = found.get("anyOf") or [{key: found.pop(key) for key in list(found) if key not in said}]
    place = next((index for index, arm in enumerate(arms) if arm.get("type") == type_), None)
    if place is not None:
        arms.insert(place if first else place + 1, other)
    found.update(arms[0] if len(arms) == 1 else {"anyOf": arms})
