"""The scenario file: every key, its unit and its range. All keys but `model` may be left out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args, get_origin

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from xe_sizer.fields import RANGE, json_schema, named, names_of, or_else
from xe_sizer.graph.inputs import Fp8Recipe
from xe_sizer.graph.model import StateType
from xe_sizer.graph.operators import ContextKind, PipelineSchedule, loss_names
from xe_sizer.graph.recompute import LayerTensor, RecomputeModule
from xe_sizer.laws.device import autocast_to, gradients_in, loaded_in, other_precisions, trained_in
from xe_sizer.profiles.finder import BUILT_IN, KINDS
from xe_sizer.profiles.model import InlineModel
from xe_sizer.scenario.quantities import QUANTITY, base_of, takes_unit
from xe_sizer.software.dispatchers import dispatcher_names, other_dispatchers
from xe_sizer.software.number_formats import cache_format_names, format_names, other_formats
from xe_sizer.software.speculation import drafting_names, other_draftings
from xe_sizer.software.stack import POOLS, OverlapWord, sleep_names

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

    @property
    def place(self) -> int: ...


_TRAINED: list[Mapping[str, _Kind]] = []
_ADAPTERS: list[Mapping[str, _Kind]] = []


def trains(methods: Mapping[str, _Kind], adapters: Mapping[str, _Kind]) -> None:
    """Make known training methods and kinds of adapters by their names; the mappings may still grow."""
    _TRAINED.append(methods)
    _ADAPTERS.append(adapters)


def job_names() -> tuple[str, ...]:
    """All jobs that are known, those that are used most first."""
    return (*_by_use(_TRAINED), INFERENCE)


def job_aliases() -> dict[str, str]:
    """What else people call the jobs."""
    return _aliases(_TRAINED) | dict.fromkeys(("serve", "serving"), INFERENCE)


def adapter_names() -> tuple[str, ...]:
    """All kinds of adapters that are known, those that are used most first, and none."""
    return (*_by_use(_ADAPTERS), NO_ADAPTERS)


def adapter_aliases() -> dict[str, str]:
    """What else people call the adapters."""
    return _aliases(_ADAPTERS) | dict.fromkeys(("full", "false"), NO_ADAPTERS)


def _by_use(groups: list[Mapping[str, _Kind]]) -> list[str]:
    places = {name: kind.place for kinds in groups for name, kind in kinds.items()}
    return sorted(places, key=lambda name: places[name])


def _aliases(groups: list[Mapping[str, _Kind]]) -> dict[str, str]:
    return {alias: name for kinds in groups for name, kind in kinds.items() for alias in kind.aliases}


# What values of a scenario may be, and the base of its sections.

# The upper ends are far above any real job; they keep a slip of the keyboard from becoming an overflow later.
Text = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x1f]*$",
        extra={"must": "have no control characters"},
    ),
]
NAMES_A_FILE = "names a file"
"""Stands beside the type of a key that names a profile or the path of a file."""
Name = Annotated[Text, NAMES_A_FILE]
PlainName = Annotated[
    str, Meta(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", extra={"must": "be a name, no path"})
]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}$", extra={"must": "be three capital letters such as USD"})]
Degree = Annotated[int, Meta(ge=1, le=1_000_000)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Tokens = Annotated[int, Meta(ge=1, le=10**9)]
MeanTokens = Annotated[float, Meta(ge=0, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
NotNegative = Annotated[float, Meta(ge=0, le=1e18)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[
    float,
    Meta(ge=0.5, lt=1, extra={RANGE: "be at least 0.5, where the expected value decides, and less than 1"}),
]
Years = Annotated[float, Meta(gt=0, le=50)]
Pue = Annotated[float, Meta(ge=1, le=10)]
Skew = Annotated[float, Meta(ge=1, le=1000)]
Capacity = Annotated[float, Meta(ge=0.1, le=1000)]
DropoutRate = Annotated[float, Meta(ge=0, lt=1)]
FailureRate = Annotated[float, Meta(ge=0, le=1000)]
ImageSize = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$", extra={"must": "be width x height, such as 1024x1024"})
]


# How a key is declared: its type with its range, and what else there is to say of it, here and nowhere else.

TRAINING, SERVING = "training", "serving"
"""The wings, each with a command of its own: `estimate` and `serve`."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts of a scenario file, and what holds for those of its keys that say nothing else.

    panel : of the help page; wing : whose command has the options, None: both
    """

    panel: ClassVar[str] = "Job"
    wing: ClassVar[str | None] = TRAINING


def about(
    description: str, *, option: str | None = "", both: bool = False, two_way: bool = False, **other: str | bool
) -> Meta:
    """What there is to say of a key beside its type.

    option : of the command line and the environment, by default the key with dashes; None: files alone have the key
    both : the commands of both wings have the option; two_way : a switch that can also be put off, as --no-...
    other : `panel`, where it differs from that of the section
    """
    wing = {"wing": None} if both else {}
    return Meta(description=description, extra={"option": option, "two_way": two_way, **wing, **other})


def judged(description: str, of: str, *, wing: str | None = None, option: str = "", most: bool = True) -> Meta:
    """A limit: a row of the table by which estimates are judged, beside its key and its range.

    of : quantity of an estimate that the limit bounds, from above or, where not `most`, from below
    wing : where only one of them has the quantity
    """
    return Meta(description=description, extra={"option": option, "wing": wing, "of": of, "most": most})


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a scenario, by its dotted name, with its type and what `about` or `judged` says of it."""

    name: str
    annotation: Any
    description: str
    option: str | None
    panel: str
    wing: str | None
    two_way: bool = False
    of: str | None = None
    most: bool = True

    def form(self) -> tuple[type, tuple[Any, ...]]:
        """Type of a value without its annotations, the first where it may have several, and the words it may be."""
        base, metas = base_of(self.annotation)
        choices = get_args(base) if get_origin(base) is Literal else names_of(metas)
        return type(choices[0]) if choices else get_origin(base) or base, choices

    @property
    def by_name(self) -> bool:
        """Whether a value may be one number or a number for each name."""
        _, *others = get_args(self.annotation.__origin__) or (None,)
        return any(get_origin(one) is dict for one in others)

    def item_names(self) -> tuple[str, ...]:
        """Names that the items of a list may be; none where they may be any, or the value is no list."""
        base, _ = base_of(self.annotation)
        return names_of(base_of(get_args(base)[0])[1]) if get_origin(base) is tuple else ()

    def or_one(self) -> bool:
        """Whether a value may be a list or one of its items."""
        arms = [get_origin(arm) or arm for arm in get_args(self.annotation.__origin__)]
        return tuple in arms and len(arms) > 2

    def lists_numbers(self) -> bool:
        """Whether a value is a list of numbers."""
        base, _ = base_of(self.annotation)
        return get_origin(base) is tuple and base_of(get_args(base)[0])[0] in (int, float)


def declared_keys(section: type[Section], path: str = "") -> Iterator[Key]:
    """Every key of a section and of those in it, in their order."""
    usual = {"panel": section.panel, "wing": section.wing}
    for name, type_ in section.__annotations__.items():
        if is_section(type_):
            yield from declared_keys(type_, f"{path}{name}.")
        elif name not in usual:
            said = type_.__metadata__[0]
            key = Key(name=path + name, annotation=type_, description=said.description, **usual | said.extra)
            yield replace(key, option=name.replace("_", "-")) if key.option == "" else key


def is_section(type_: Any) -> bool:
    """Whether a key of this type holds a group of keys."""
    return isinstance(type_, type) and issubclass(type_, Section)


# The section `limits` of a scenario file: what the answer must keep.


class LimitsSection(Section, frozen=True):
    """What the answer must keep; a broken limit is exit code 1."""

    panel: ClassVar = "Limits and prices"
    wing: ClassVar = None

    max_hours: Annotated[Positive | None, judged("Maximum time of the run in hours", "hours", wing=TRAINING)] = None
    max_cost: Annotated[Positive | None, judged("Maximum price of the run", "cost", wing=TRAINING)] = None
    max_ttft_s: Annotated[
        Positive | None,
        judged("Maximum time to first token (TTFT) in seconds", "ttft_s", wing=SERVING, option="ttft"),
    ] = None
    max_tpot_s: Annotated[
        Positive | None,
        judged("Maximum time per output token (TPOT) in seconds", "tpot_s", wing=SERVING, option="tpot"),
    ] = None
    max_request_s: Annotated[
        Positive | None,
        judged(
            "Maximum time of a request without output tokens in seconds",
            "answered_s",
            wing=SERVING,
            option="request-time",
        ),
    ] = None
    max_cost_per_million_tokens: Annotated[
        Positive | None,
        judged(
            "Maximum price per million output tokens, or input tokens of a service without output",
            "cost_per_million_tokens",
            wing=SERVING,
        ),
    ] = None
    max_gpus: Annotated[Degree | None, judged("Maximum number of GPUs", "gpus")] = None
    max_kw: Annotated[
        Positive | None, judged("Maximum power of the servers at load in kW, without cooling", "power_kw")
    ] = None
    min_headroom_gib: Annotated[
        NotNegative | None, judged("Memory left free per GPU in GiB", "headroom_gib", most=False)
    ] = None
    confidence: Annotated[
        Confidence | None,
        about("Probability with which limits must hold and memory suffice; default: 0.5"),
    ] = None


# The section `serve` of a scenario file: the load of a service, its lengths, formats and the engine's settings.

LOADS = ("request_rate", "concurrency", "users", "batch")  # keys of `serve`, of which a scenario has at most one
NumberFormat = Annotated[str, named(format_names, other_formats)]
CacheFormat = Annotated[str, named(cache_format_names, other_formats)]
StateFormat = Annotated[
    StateType,
    or_else(fp32="float32", float="float32", bf16="bfloat16", fp16="float16", half="float16"),
]
DispatcherName = Annotated[str, named(dispatcher_names, other_dispatchers)]
Percentile = Annotated[float, Meta(ge=50, le=99.9)]
Iterations = Annotated[int, Meta(ge=0, le=1_000_000)]
Drafts = Annotated[str, named(drafting_names, other_draftings)]
Rates = tuple[Share, ...] | Share
Arrivals = Annotated[Literal["poisson", "constant"], or_else(random="poisson", even="constant", uniform="constant")]
Spares = Annotated[int, Meta(ge=0, le=1_000)]
Spread = Annotated[float, Meta(ge=0, le=20)]


Turns = Annotated[int, Meta(ge=1, le=1_000)]


class ServeSection(Section, frozen=True):
    """What is served: the load, its lengths, number formats and the engine's settings."""

    panel: ClassVar = "Load"
    wing: ClassVar = SERVING

    engine: Annotated[
        Name | None, about("Inference engine, e.g. vllm, or the path of an engine file", panel="Engine")
    ] = None
    request_rate: Annotated[Positive | None, about("Requests per second, all replicas together")] = None
    concurrency: Annotated[Degree | None, about("Requests in flight, all replicas together")] = None
    users: Annotated[Degree | None, about("People who send a request, read the answer and send the next")] = None
    think_time_s: Annotated[
        Positive | None,
        about("Seconds between an answer and the user's next request; default: 30", option="think-time"),
    ] = None
    turns: Annotated[
        Turns | None,
        about("Turns of a session: each prompt has the whole history, which the prefix cache may still have"),
    ] = None
    turn_tokens: Annotated[
        Positive | None, about("Tokens that a user or a tool adds to the history per turn; default: 256")
    ] = None
    tool_seconds: Annotated[
        NotNegative | None, about("Seconds between an answer and the session's next turn; default: the think time")
    ] = None
    batch: Annotated[
        Degree | None,
        about("Requests that each replica starts together and runs to completion (a benchmark)"),
    ] = None
    requests: Annotated[
        Degree | None,
        about(
            "Number of requests in a benchmark: sent all at once, at the rate or at the concurrency; "
            "latencies are those of the benchmark"
        ),
    ] = None
    arrivals: Annotated[
        Arrivals | None,
        about("Arrivals of a benchmark's requests at a rate: at random (default) or evenly spaced"),
    ] = None
    trace: Annotated[
        Name | None,
        about("File of requests to replay: timestamp, prompt and output tokens; CSV or JSON Lines"),
    ] = None
    input_tokens: Annotated[Positive | None, about("Mean tokens of a prompt, without its images' tokens")] = None
    output_tokens: Annotated[
        MeanTokens | None,
        about("Mean output tokens; 0: embeddings or scores"),
    ] = None
    documents: Annotated[
        Degree | None,
        about("Texts in a request without output: documents of a reranker, each with its query; default: 1"),
    ] = None
    input_spread: Annotated[Spread | None, about("Standard deviation of prompt lengths / mean")] = None
    output_spread: Annotated[Spread | None, about("Standard deviation of output lengths / mean")] = None
    longest_input_tokens: Annotated[Tokens | None, about("Tokens that no prompt is above, without its images'")] = None
    longest_output_tokens: Annotated[Tokens | None, about("Tokens at which answers are cut")] = None
    images: Annotated[Annotated[int, Meta(ge=0, le=1_000)] | None, about("Images in each prompt; 0: text only")] = None
    image_size: Annotated[ImageSize | None, about("Width and height of an image, e.g. 1024x1024")] = None
    prefix_hit_share: Annotated[Share | None, about("Share of prompt tokens found in the prefix cache")] = None
    fit: Annotated[
        Literal["context", "sessions"] | None,
        about("Find the longest context at the concurrency, or the most sessions of the given length"),
    ] = None
    kv_host_gib: Annotated[
        NotNegative | None,
        about("Host memory for the KV cache of a replica, for returning users, in GiB; 0: GPU memory only"),
    ] = None
    cpu_layers: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | Literal["auto"] | None,
        about("Layers that the CPU computes, in llama.cpp; auto: as few as memory needs", panel="Engine"),
    ] = None
    ngram_tables: Annotated[
        Literal["gpu", "host"] | None,
        about("Where tables of n-grams are kept, as of Qwen3.8-Flash-Next; default: the engine's", panel="Engine"),
    ] = None
    host_memory_gb_per_s: Annotated[
        Positive | None,
        about("Bandwidth of the host's memory, which layers on the CPU are read at; default: 89.6", panel="Hardware"),
    ] = None
    speculative: Annotated[
        Drafts | None,
        about(
            "Method of speculative decoding; default: mtp where draft tokens are given and the model has modules",
            panel="Speculation",
        ),
    ] = None
    draft_model: Annotated[
        Name | None,
        about(
            "Model that drafts, or the configuration of an EAGLE head; default: a layer as wide as the model's",
            panel="Speculation",
        ),
    ] = None
    draft_tp: Annotated[
        Degree | None,
        about("Tensor parallel ranks of what drafts; default: those of the model", panel="Speculation"),
    ] = None
    draft_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | None,
        about("Tokens that speculative decoding proposes per step", panel="Speculation"),
    ] = None
    draft_width: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        about("Branches of the tree of drafts at each position (SGLang's eagle-topk); default: 1", panel="Speculation"),
    ] = None
    draft_depth: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        about(
            "Positions of the tree of drafts, one pass of the drafter each; default: draft tokens / width",
            panel="Speculation",
        ),
    ] = None
    acceptance_rate: Annotated[
        Rates | None,
        about("Probability that a proposed token is accepted, or one for each position", panel="Speculation"),
    ] = None
    draft_cost: Annotated[
        Share | None,
        about(
            "Time to draft one token as a share of the time of a step; default: computed from the drafter",
            panel="Speculation",
        ),
    ] = None
    weights: Annotated[NumberFormat | None, about("Number format of the weights", panel="Formats")] = None
    activations: Annotated[NumberFormat | None, about("Number format of the activations", panel="Formats")] = None
    kv_cache: Annotated[CacheFormat | None, about("Number format of the KV cache", panel="Formats")] = None
    state_dtype: Annotated[
        StateFormat | None,
        about("Type of recurrent states; default: the model's or the engine's", panel="Formats"),
    ] = None
    scheme: Annotated[
        Text | None,
        about("Bits of weights, activations and KV cache, e.g. w4a16k8; instead of formats", panel="Formats"),
    ] = None
    gpu_memory_utilization: Annotated[
        Fraction | None, about("Share of the GPU memory that the engine may use", panel="Engine")
    ] = None
    max_sequences: Annotated[Degree | None, about("Maximum requests in one step of a replica", panel="Engine")] = None
    max_model_len: Annotated[
        Tokens | None,
        about("Longest prompt plus answer that the engine accepts", panel="Engine"),
    ] = None
    max_step_tokens: Annotated[Degree | None, about("Maximum tokens in one step of a replica", panel="Engine")] = None
    scheduler_recv_interval: Annotated[
        Degree | None, about("Decode steps between the scheduler's checks for new requests (SGLang)", panel="Engine")
    ] = None
    batch_wait_iters: Annotated[
        Iterations | None,
        about("Decode steps for which prompts wait to be batched with others (TensorRT-LLM)", panel="Engine"),
    ] = None
    dispatcher: Annotated[
        DispatcherName | None,
        about("How tokens get to experts on other GPUs, e.g. deepep; default: the engine's", panel="Experts"),
    ] = None
    expert_skew: Annotated[
        Skew | None,
        about(
            "Tokens of the busiest expert-parallel rank over the mean, if known; 1: balanced",
            option="serve-expert-skew",
            panel="Experts",
        ),
    ] = None
    redundant_experts: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        about("Place experts by their load (EPLB), with so many copies of busy ones per layer", panel="Experts"),
    ] = None
    two_batch_overlap: Annotated[
        bool | None,
        about("Compute a step in two halves that hide each other's exchanges with experts", panel="Experts"),
    ] = None
    expert_gpus: Annotated[
        Degree | Literal["auto"] | None,
        about(
            "GPUs of a replica that hold experts alone, while the others attend; auto: the best number of both",
            panel="Experts",
        ),
    ] = None
    micro_batches: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None,
        about(
            "Micro-batches of a step between GPUs of attention and of experts; default: the best of 1 to 4",
            panel="Experts",
        ),
    ] = None
    objective: Annotated[
        Literal["throughput", "latency"] | None,
        about(
            "What the placement is chosen for; default: depends on the load",
            panel="Limits and prices",
        ),
    ] = None
    hourly_load: Annotated[
        Annotated[tuple[NotNegative, ...], Meta(min_length=24, max_length=24)] | None,
        about("Load of the 24 hours of a day, from midnight, in any unit: the given load is the highest"),
    ] = None
    replica_start_s: Annotated[
        NotNegative | None,
        about(
            "Seconds until a new replica is ready; default: weights read at 2 GB/s per server, plus 60 s",
            option="replica-start",
        ),
    ] = None
    percentile: Annotated[
        Percentile | None, about("Percentile at which latency limits must hold", panel="Limits and prices")
    ] = None
    adapters: Annotated[
        Degree | None,
        about("LoRA adapters that requests use, each equally often; see lora.rank and targets", panel="Method"),
    ] = None
    adapter_slots: Annotated[
        Degree | None,
        about("Adapters held on the GPU at once, and thus the most in a step; default: all", panel="Method"),
    ] = None
    prefill_replicas: Annotated[
        Degree | Literal["auto"] | None,
        about(
            "Replicas that only prefill, while the others only decode; auto: the best number of both",
            panel="Prefill and decode apart",
        ),
    ] = None
    prefill_tp: Annotated[
        Degree | None, about("Tensor-parallel ranks of a prefill replica", panel="Prefill and decode apart")
    ] = None
    prefill_pp: Annotated[
        Degree | None, about("Pipeline stages of a prefill replica", panel="Prefill and decode apart")
    ] = None
    prefill_ep: Annotated[
        Degree | None, about("Expert-parallel ranks of a prefill replica", panel="Prefill and decode apart")
    ] = None
    prefill_dp: Annotated[
        Degree | None, about("Attention groups of a prefill replica", panel="Prefill and decode apart")
    ] = None
    encode_replicas: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | Literal["auto"] | None,
        about(
            "GPUs that only encode images and send the embeddings to the replicas; auto: as many as the load needs; "
            "0: replicas encode their own",
            panel="Prefill and decode apart",
        ),
    ] = None
    spare_replicas: Annotated[Spares | None, about("Extra replicas in case of failures", panel="Limits and prices")] = (
        None
    )


# The section `rollout` of a scenario file: how a reinforcement-learning job writes and rates its answers.

Oversampling = Annotated[float, Meta(ge=1, le=100)]
Sleep = Annotated[str, named(sleep_names)]
WeightUpdate = Annotated[
    Literal["drain", "abort", "in-flight"],
    or_else(inflight="in-flight", wait="drain", interrupt="abort", abortandresume="abort", stop="drain"),
]


class RolloutSection(Section, frozen=True):
    """How answers are written and rated between the optimizer steps of reinforcement learning."""

    engine: Annotated[
        Name | None,
        about(
            "Inference engine that generates the responses, e.g. vllm; default: the stack's", option="rollout-engine"
        ),
    ] = None
    prompts: Annotated[Degree | None, about("Prompts of an iteration")] = None
    group: Annotated[Degree | None, about("Responses to each prompt")] = None
    input_tokens: Annotated[Positive | None, about("Mean tokens of a prompt", option="rollout-input-tokens")] = None
    output_tokens: Annotated[NotNegative | None, about("Mean tokens of a response", option="rollout-output-tokens")] = (
        None
    )
    max_output_tokens: Annotated[Tokens | None, about("Tokens at which responses are truncated")] = None
    output_spread: Annotated[
        Spread | None,
        about("Standard deviation of response lengths / mean, before truncation", option="rollout-output-spread"),
    ] = None
    lengths: Annotated[
        Name | None,
        about("Log of a rollout with lengths of prompts and responses: JSON Lines or CSV", option="lengths"),
    ] = None
    oversampling: Annotated[
        Oversampling | None, about("Responses generated for each that is trained on (dynamic sampling)")
    ] = None
    updates: Annotated[Degree | None, about("Passes over the responses of an iteration (PPO epochs)")] = None
    colocated: Annotated[
        bool | None, about("Generate on the GPUs that train; else on GPUs of their own", two_way=True)
    ] = None
    gpus: Annotated[Degree | None, about("GPUs that only generate", option="rollout-gpus")] = None
    tp: Annotated[
        Degree | None, about("Tensor-parallel GPUs of a replica that generates responses", option="rollout-tp")
    ] = None
    pp: Annotated[
        Degree | None, about("Pipeline stages of a replica that generates responses", option="rollout-pp")
    ] = None
    ep: Annotated[
        Degree | None, about("Expert-parallel GPUs of a replica that generates responses", option="rollout-ep")
    ] = None
    gpu_memory_utilization: Annotated[
        Fraction | None,
        about(
            "Share of the GPU memory that the engine may use during generation",
            option="rollout-gpu-memory-utilization",
        ),
    ] = None
    weights: Annotated[
        NumberFormat | None, about("Number format of the weights that generate responses", option="rollout-weights")
    ] = None
    kv_cache: Annotated[
        CacheFormat | None, about("Number format of the engine's KV cache", option="rollout-kv-cache")
    ] = None
    max_sequences: Annotated[
        Degree | None, about("Maximum responses that a replica generates at once", option="rollout-max-sequences")
    ] = None
    log_prob_micro_batch: Annotated[
        Degree | None,
        about(
            "Responses of one forward pass per GPU that computes log-probabilities; default: the micro-batch",
            option="rollout-log-prob-micro-batch",
        ),
    ] = None
    sleep: Annotated[
        Sleep | None, about("What the engine gives back between the phases on shared GPUs", option="rollout-sleep")
    ] = None
    offload: Annotated[
        Literal["none", "optimizer", "params"] | None,
        about(
            "What the trainer leaves to host memory during generation; params: all states",
            option="rollout-offload",
        ),
    ] = None
    asynchronous: Annotated[
        bool | None, about("Generate the next responses while training on these, on GPUs of their own")
    ] = None
    max_staleness: Annotated[
        Degree | None, about("Iterations by which responses may be older than the weights; default: 1")
    ] = None
    partial: Annotated[
        bool | None, about("Long responses are interrupted and go on in the next iteration", option="rollout-partial")
    ] = None
    update: Annotated[
        WeightUpdate | None,
        about(
            "What responses under way do when new weights come: end first, begin their cache again, or go on",
            option="rollout-update",
        ),
    ] = None
    transport: Annotated[
        Literal["broadcast", "disk"] | None,
        about("How weights come to GPUs that only generate; default: broadcast", option="rollout-transport"),
    ] = None
    verifier_s: Annotated[
        NotNegative | None, about("CPU seconds that rating one response takes", option="verifier-seconds")
    ] = None
    verifier_workers: Annotated[
        Degree | None, about("Responses rated at once, by as many CPU processes; default: 8 per GPU")
    ] = None


# The section `environment`: tools, sandboxes and simulators that a policy calls between its turns.


class EnvironmentSection(Section, frozen=True):
    """What responses wait for between their turns, and the CPUs that it runs on."""

    turns: Annotated[
        Annotated[float, Meta(ge=1, le=10_000)] | None,
        about(
            "Turns in which the policy writes a response, with a call of a tool after each but the last",
            option="environment-turns",
        ),
    ] = None
    turn_tokens: Annotated[
        NotNegative | None,
        about(
            "Tokens that a call adds to the response, read but not written by the policy; default: 256",
            option="environment-turn-tokens",
        ),
    ] = None
    seconds: Annotated[NotNegative | None, about("Seconds of a call of a tool", option="environment-seconds")] = None
    spread: Annotated[
        Spread | None,
        about("Standard deviation of the seconds of a call / mean; default: 1", option="environment-spread"),
    ] = None
    start_s: Annotated[
        NotNegative | None,
        about("Seconds in which an environment starts, before the first turn", option="environment-start-seconds"),
    ] = None
    cores: Annotated[Positive | None, about("CPU cores that a call takes; default: 1", option="environment-cores")] = (
        None
    )
    pool_cores: Annotated[
        Positive | None,
        about("CPU cores of all environments together; default: as many as they need", option="environment-pool-cores"),
    ] = None
    at_once: Annotated[
        Degree | None,
        about("Calls at once: workers, or the limit of a service; default: no limit", option="environment-at-once"),
    ] = None
    server_cores: Annotated[
        Degree | None, about("CPU cores of a server for environments; default: 64", option="environment-server-cores")
    ] = None


# The sections `critic`, `reward` and `reference`: models beside the one that learns, on GPUs of their own.


class CriticSection(Section, frozen=True):
    """Where the critic of a reinforcement-learning job is trained."""

    colocated: Annotated[
        bool | None,
        about(
            "Train the critic on the GPUs of the actor; else on GPUs of its own",
            option="critic-colocated",
            two_way=True,
        ),
    ] = None
    gpus: Annotated[Degree | None, about("GPUs of the critic alone; counted in gpus", option="critic-gpus")] = None
    tp: Annotated[Degree | None, about("Tensor-parallel GPUs of a critic on GPUs of its own", option="critic-tp")] = (
        None
    )
    pp: Annotated[Degree | None, about("Pipeline stages of a critic on GPUs of its own", option="critic-pp")] = None


class RewardSection(Section, frozen=True):
    """Where the reward model of a reinforcement-learning job runs, and how it judges responses."""

    colocated: Annotated[
        bool | None,
        about(
            "Run the reward model on the GPUs of the actor; else on GPUs of its own",
            option="reward-colocated",
            two_way=True,
        ),
    ] = None
    gpus: Annotated[Degree | None, about("GPUs of the reward model alone; counted in gpus", option="reward-gpus")] = (
        None
    )
    with_critic: Annotated[
        bool | None, about("Run the reward model on the GPUs of the critic", option="reward-with-critic")
    ] = None
    tp: Annotated[
        Degree | None, about("Tensor-parallel GPUs of a reward model on GPUs of its own", option="reward-tp")
    ] = None
    pp: Annotated[Degree | None, about("Pipeline stages of a reward model on GPUs of its own", option="reward-pp")] = (
        None
    )
    engine: Annotated[
        Name | None,
        about(
            "Inference engine that serves the reward model, e.g. vllm; else a forward of the trainer's stack",
            option="reward-engine",
        ),
    ] = None
    input_tokens: Annotated[
        NotNegative | None,
        about("Tokens that a judge reads beside prompt and response; default: none", option="reward-input-tokens"),
    ] = None
    output_tokens: Annotated[
        Positive | None,
        about("Mean tokens that a judge writes about a response; default: 1, a score", option="reward-output-tokens"),
    ] = None
    streams: Annotated[
        bool | None,
        about(
            "Rate responses on GPUs of their own while others are still generated",
            option="reward-streams",
            two_way=True,
        ),
    ] = None


class ReferenceSection(Section, frozen=True):
    """Where the reference model of a reinforcement-learning job runs."""

    colocated: Annotated[
        bool | None,
        about(
            "Run the reference on the GPUs of the actor; else on GPUs of its own",
            option="reference-colocated",
            two_way=True,
        ),
    ] = None
    gpus: Annotated[
        Degree | None, about("GPUs of the reference model alone; counted in gpus", option="reference-gpus")
    ] = None
    tp: Annotated[
        Degree | None, about("Tensor-parallel GPUs of a reference on GPUs of its own", option="reference-tp")
    ] = None
    pp: Annotated[Degree | None, about("Pipeline stages of a reference on GPUs of its own", option="reference-pp")] = (
        None
    )


class TeacherSection(Section, frozen=True):
    """Where the teacher of a distillation on the student's own responses runs."""

    colocated: Annotated[
        bool | None,
        about(
            "Run the teacher on the GPUs of the student; else on GPUs of its own",
            option="teacher-colocated",
            two_way=True,
        ),
    ] = None
    gpus: Annotated[Degree | None, about("GPUs of the teacher alone; counted in gpus", option="teacher-gpus")] = None
    tp: Annotated[Degree | None, about("Tensor-parallel GPUs of a teacher apart", option="teacher-tp")] = None
    pp: Annotated[Degree | None, about("Pipeline stages of a teacher apart", option="teacher-pp")] = None
    engine: Annotated[
        Name | None,
        about("Inference engine that serves the teacher; else a forward of the stack", option="teacher-engine"),
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
        dualpipev="dualpipe-v", cutinhalf="dualpipe-v",
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
Overlapped = Annotated[OverlapWord, or_else(true="on", false="off", all="on", none="off")]
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
Objective = Literal["servers", "gpus", "cost", "capex", "time", "energy"]


class Histogram(Section, frozen=True):
    """Token lengths of a data set, counted."""

    lengths: Annotated[tuple[Tokens, ...], Meta(min_length=1, description="Tokens of a sample, one per bin")]
    counts: Annotated[tuple[NotNegative, ...], Meta(min_length=1, description="Samples in each bin")]


class DataSection(Section, frozen=True):
    """What is trained on: a data set profile, a file of samples, a histogram, or statistics of the token lengths."""

    panel: ClassVar = "Data"

    profile: Annotated[Name | None, about("Data set profile, or samples: train.jsonl", option="dataset")] = None
    file: Annotated[
        Name | None, about("Samples: JSON Lines, JSON or Parquet; their tokens are counted", option=None)
    ] = None
    tokenizer: Annotated[Name | None, about("Counts the samples: tokenizer.json or its folder")] = None
    samples: Annotated[Count | None, about("Samples in the data set")] = None
    mean_tokens: Annotated[Positive | None, about("Mean tokens per sample, without padding")] = None
    chosen_tokens: Annotated[
        Positive | None, about("Mean tokens of a prompt with its chosen answer, where samples are pairs")
    ] = None
    rejected_tokens: Annotated[
        Positive | None,
        about("Mean tokens of a prompt with its rejected answer, where samples are pairs"),
    ] = None
    min_tokens: Annotated[Tokens | None, about("Tokens of the shortest sample")] = None
    max_tokens: Annotated[Tokens | None, about("Tokens of the longest sample")] = None
    tokens: Annotated[Positive | None, about("Tokens of the whole data set, without padding")] = None
    histogram: Annotated[Histogram | None, about("Token lengths, counted", option=None)] = None
    images: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None,
        about(
            "Images of a sample, whose tokens come beside those of its text; default: none, no encoder",
            option="sample-images",
        ),
    ] = None
    image_size: Annotated[
        ImageSize | None,
        about("Width and height of its images, e.g. 1024x768", option="sample-image-size"),
    ] = None


class TrainSection(Section, frozen=True):
    """How long to train and how batches are made."""

    panel: ClassVar = "Training"

    steps: Annotated[Count | None, about("Optimizer steps; instead of epochs")] = None
    epochs: Annotated[Positive | None, about("Passes over the data set; instead of steps")] = None
    global_batch: Annotated[Degree | None, about("Sequences per optimizer step, all GPUs")] = None
    micro_batch: Annotated[Degree | None, about("Sequences per forward pass on each GPU")] = None
    grad_accum: Annotated[Degree | None, about("Micro-batches per optimizer step")] = None
    seq_len: Annotated[Tokens | None, about("Tokens at which samples are cut")] = None
    target_len: Annotated[
        Tokens | None,
        about(
            "Tokens of the decoder's sequences; default: as T5 or BART pre-train, else a quarter of seq_len",
        ),
    ] = None
    padding: Annotated[Padding | None, about("What short samples are padded to")] = None
    task: Annotated[
        Task | None,
        about("What is read from the last layer; default: what the job reads, logits of the vocabulary"),
    ] = None
    weights_dtype: Annotated[
        Annotated[str, named(loaded_in, other_precisions)] | None,
        about("Number format that the weights are loaded and kept in"),
    ] = None
    gradient_dtype: Annotated[
        Annotated[str, named(gradients_in, other_precisions)] | None,
        about("Number format that gradients are added up and kept in; default: the stack's"),
    ] = None
    reduce_dtype: Annotated[
        Annotated[str, named(gradients_in, other_precisions)] | None,
        about("Number format that GPUs exchange gradients in, where that is a choice of its own; default: the stack's"),
    ] = None
    mixed_precision: Annotated[
        Annotated[str, named(autocast_to)] | None,
        about("What autocast computes in, whatever is loaded, or none; default: the stack's"),
    ] = None
    backend: Annotated[
        PlainName | None,
        about("What shares states out, where the stack has several: deepspeed, fsdp"),
    ] = None
    fp8_recipe: Annotated[Fp8 | None, about("How operands in 8 bit are scaled, e.g. mxfp8; default: the stack's")] = (
        None
    )
    overlap: Annotated[
        Annotated[tuple[Overlapped, ...], Meta(min_length=1)] | None,
        about(
            "Exchanges that compute hides, and no others: on, off, or e.g. data-parallel, sharding; default: the "
            "stack's",
        ),
    ] = None
    fused_kernels: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        about("Fused kernels in place of the stack's own, e.g. norm, rotary, activation, loss, liger, none"),
    ] = None
    quantiser: Annotated[
        Name | None, about("Library that holds frozen weights in few bits, e.g. bitsandbytes, or a file")
    ] = None
    bits: Annotated[
        Annotated[int, Meta(ge=1, le=16)] | None, about("Bits of a frozen weight, where it is quantised")
    ] = None
    trainable_layers: Annotated[
        Degree | None,
        about("Layers at the end of the model that learn, with the rest, embedding and head frozen"),
    ] = None
    experts_per_token: Annotated[
        Degree | None, about("Experts that each token goes through, if not as many as the model has")
    ] = None
    mtp_layers: Annotated[
        Annotated[int, Meta(ge=0, le=64)] | None,
        about("Layers for multi-token prediction (MTP) that learn behind the model's own; default: none"),
    ] = None
    expert_skew: Annotated[
        Skew | None, about("Tokens of the busiest rank of experts over their mean; default: the stack's, 1: balanced")
    ] = None
    capacity_factor: Annotated[
        Capacity | None, about("Tokens that an expert takes over their mean; what is above is dropped; default: all")
    ] = None
    pad_to_capacity: Annotated[bool | None, about("Pad the tokens of every expert to its capacity")] = None
    optimizer_rank: Annotated[
        Degree | None,
        about("Rank to which GaLore and APOLLO project gradients; default: the optimizer's"),
    ] = None
    reference: Annotated[
        Reference | None,
        about("Where a reference's log-probabilities come from; default: a copy, or adapters off"),
    ] = None
    teacher_model: Annotated[
        Name | None, about("Model that teaches the student: a profile name or path, or a config.json")
    ] = None
    teacher_top_k: Annotated[
        Degree | None,
        about("Words a token of which the teacher gives log-probabilities; default: its vocabulary"),
    ] = None
    dropout: Annotated[
        DropoutRate | None, about("Share that dropout zeroes where the model has it; default: the stack's")
    ] = None
    reduce_every_micro_batch: Annotated[
        bool | None, about("Reduce gradients in every micro-batch, not once per step (ZeRO 2 and 3)")
    ] = None
    empty_cache_steps: Annotated[
        Count | None,
        about("Steps after which the allocator gives free memory back; default: never"),
    ] = None
    freeze: Annotated[
        Annotated[tuple[FrozenPart, ...], Meta(min_length=1)] | None,
        about("Parts of a model that sees which do not learn: vision, projector, language, or none"),
    ] = None
    checkpoint_every: Annotated[
        Count | None, about("Steps from one checkpoint to the next; the last step is saved too")
    ] = None
    async_checkpoint: Annotated[bool | None, about("Write checkpoints from host memory while training goes on")] = None
    batch_ramp_up: Annotated[
        tuple[Degree, Degree, Count] | None,
        about("First global batch, what it grows by, and sequences until it is whole, e.g. 32,32,65536"),
    ] = None
    evaluate_every: Annotated[Count | None, about("Steps from one evaluation to the next")] = None
    evaluate_samples: Annotated[
        Count | None,
        about("Samples of one evaluation; default: 5 % of the data set, at most 100 global batches"),
    ] = None
    critic_model: Annotated[Name | None, about("Model that rates every token in PPO; default: the model itself")] = None
    reward_model: Annotated[
        Name | None,
        about("Model that rates responses; default for ppo: the model itself; none: a verifier"),
    ] = None
    failures_per_gpu_day: Annotated[
        FailureRate | None,
        about("Failures that stop the whole job, per GPU and day, e.g. 0.0005; default: none"),
    ] = None


class StorageSection(Section, frozen=True):
    """Where checkpoints go."""

    panel: ClassVar = "Training"

    write_gb_per_s: Annotated[
        Positive | None,
        about(
            "GB/s that storage takes from all nodes together; default: 2 for each node", option="storage-write-gb-per-s"
        ),
    ] = None


class LayoutSection(Section, frozen=True):
    """How the model is spread over GPUs; what is left out is chosen."""

    panel: ClassVar = "Layout"

    tp: Annotated[Degree | None, about("Tensor parallel GPUs", both=True)] = None
    pp: Annotated[Degree | None, about("Pipeline stages", both=True)] = None
    vpp: Annotated[Degree | None, about("Model chunks per pipeline stage (interleaving)")] = None
    cp: Annotated[Degree | None, about("Context parallel GPUs")] = None
    cp_kind: Annotated[CpKind | None, about("What context parallel GPUs exchange; default: the stack's")] = None
    ep: Annotated[Degree | None, about("Expert parallel GPUs", both=True)] = None
    expert_tp: Annotated[
        Degree | None,
        about("GPUs that split an expert; default: tp where ep allows"),
    ] = None
    dp: Annotated[Degree | None, about("Data parallel replicas; in serving: ranks that share experts", both=True)] = (
        None
    )
    zero: Annotated[Zero | None, about("ZeRO stage; 3 is FSDP")] = None
    zero_group: Annotated[
        Degree | None, about("Data parallel ranks that share one copy of sharded states; default: all")
    ] = None
    schedule: Annotated[
        Schedule | None,
        about("Order of a pipeline's passes; default: 1f1b, interleaved where vpp is above 1"),
    ] = None
    uneven_stages: Annotated[bool | None, about("Let stages differ by a layer; the fullest decides")] = None
    stages: Annotated[
        Annotated[tuple[Annotated[int, Meta(ge=0, le=65_536)], ...], Meta(min_length=2)] | None,
        about("Layers of every pipeline stage, e.g. 7,8,8,7"),
    ] = None
    first_stage_layers: Annotated[
        Degree | None, about("Layers of the first pipeline stage; the others share the rest")
    ] = None
    last_stage_layers: Annotated[
        Degree | None, about("Layers of the last pipeline stage; the others share the rest")
    ] = None
    account_for_embedding: Annotated[
        bool | None, about("The embedding takes a layer's place on the first pipeline stage")
    ] = None
    account_for_loss: Annotated[bool | None, about("Head and loss take a layer's place on the last pipeline stage")] = (
        None
    )
    sequence_parallel: Annotated[bool | None, about("Split norms and dropout over tp", two_way=True)] = None
    recompute: Annotated[Recompute | None, about("Activations recomputed in the backward pass")] = None
    recompute_modules: Annotated[
        Annotated[tuple[RecomputeModule, ...], Meta(min_length=1)] | None,
        about("Modules that selective recomputation runs again, e.g. moe, layernorm"),
    ] = None
    recompute_policy: Annotated[
        Text | None, about("What layers that run again keep, by the stack's name for it, e.g. minimal, save_qkv_proj")
    ] = None
    recompute_keep: Annotated[
        tuple[LayerTensor, ...] | None, about("Tensors that layers which run again keep on the GPU, e.g. out_proj")
    ] = None
    recompute_offload: Annotated[
        tuple[LayerTensor, ...] | None, about("Tensors that layers which run again keep in host memory")
    ] = None
    recompute_layers: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        about("Layers of a stage that full recomputation runs again"),
    ] = None
    offload: Annotated[Offload | None, about("What host memory keeps; weights take the optimizer along")] = None
    bucket_gib: Annotated[
        Positive | None, about("Buffer in which data-parallel ranks reduce gradients; default: the stack's")
    ] = None
    prefetch_elements: Annotated[
        NotNegative | None, about("Elements of weights that ZeRO 3 gathers ahead; DeepSpeed's own: 5e7")
    ] = None
    live_elements: Annotated[
        NotNegative | None,
        about("Gathered elements beyond which ZeRO 3 gathers nothing ahead; DeepSpeed's own: 1e9"),
    ] = None
    reuse_elements: Annotated[
        NotNegative | None,
        about("Elements within which a weight that is needed again stays gathered; DeepSpeed's own: 1e9"),
    ] = None
    persistent_elements: Annotated[
        NotNegative | None,
        about("Elements of the largest tensor that ZeRO 3 does not shard; DeepSpeed's own: 1e5"),
    ] = None
    offload_layers: Annotated[
        Degree | None, about("Layers of a stage whose activations are offloaded; default: all")
    ] = None
    offload_fraction: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        about("Share of the optimizer that an offload keeps in host memory; default: all"),
    ] = None


class LoraSection(Section, frozen=True):
    """Adapters of the jobs that have them."""

    panel: ClassVar = "Method"

    rank: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None, about("Rank of the adapters", option="lora-rank", both=True)
    ] = None
    targets: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        about("Modules with adapters, e.g. qkv", option="lora-targets", both=True),
    ] = None
    alpha: Annotated[
        Positive | None,
        about("Scale of the adapters times their rank; changes neither memory nor time: for export alone", option=None),
    ] = None
    dropout: Annotated[
        DropoutRate | None, about("Share of an adapter's input that dropout zeroes", option="lora-dropout")
    ] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        about("Size of the blocks of adapters whose matrices are cut into such"),
    ] = None
    frequencies: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        about("Coefficients that learn of a weight's Fourier or wavelet transform"),
    ] = None
    dora: Annotated[bool | None, about("Adapters with magnitudes apart from directions (DoRA)")] = None
    modules_to_save: Annotated[
        Annotated[tuple[PlainName, ...], Meta(min_length=1)] | None,
        about("Modules that learn beside the adapters: embed_tokens, lm_head"),
    ] = None


class PTuningSection(Section, frozen=True):
    """The prompt encoder of prompt tuning."""

    panel: ClassVar = "Method"

    virtual_tokens: Annotated[Degree | None, about("Virtual tokens before each sample", option=None)] = None
    encoder_hidden: Annotated[Degree | None, about("Hidden size of the prompt encoder", option=None)] = None


class EmbeddingSection(Section, frozen=True):
    """What embedding models compare while they learn."""

    hard_negatives: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None, about("Hard negatives of each query; default: none")
    ] = None
    across_gpus: Annotated[
        bool | None, about("Compare a query with the passages of all GPUs", option="negatives-across-gpus")
    ] = None
    cached: Annotated[
        bool | None,
        about("Cached gradients: compare the passages of all micro-batches of a step", option="cached-gradients"),
    ] = None


class CostSection(Section, frozen=True):
    """What hardware costs: rented by the hour, or owned."""

    panel: ClassVar = "Limits and prices"
    wing: ClassVar = None

    price_per_gpu_hour: Annotated[
        NotNegative | dict[str, NotNegative] | None,
        about("Price per GPU-hour; in a file also by name"),
    ] = None
    capex_per_server: Annotated[
        Positive | dict[str, Positive] | None,
        about("What a server costs to buy, or NAME=X, repeatable"),
    ] = None
    years: Annotated[Years | None, about("Years for which servers that are owned are used; default: 5")] = None
    utilisation: Annotated[
        Fraction | None,
        about("Share of their hours that owned servers have work; default: 0.8, of a service 1"),
    ] = None
    kwh_price: Annotated[NotNegative | None, about("Price of electricity per kWh")] = None
    pue: Annotated[Pue | None, about("Power of the data centre over that of its servers; default: 1.54")] = None
    staff_share: Annotated[
        Share | None,
        about("Staff and space on top, as a share of capital and electricity; default: none"),
    ] = None
    api_price_per_million: Annotated[
        Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=2)] | None,
        about(
            "Price of an API per million input and output tokens, e.g. 0.25,2, to compare with; one number: of both",
            wing=SERVING,
        ),
    ] = None
    currency: Annotated[Currency | None, about("Currency of prices, e.g. USD", option=None)] = None


class EfficiencySection(Section, frozen=True):
    """Fixed fractions of the peaks instead of the operator laws."""

    panel: ClassVar = "Efficiency"
    wing: ClassVar = None

    flops: Annotated[Fraction | None, about("Fraction of the peak FLOP/s, above 0 to 1", option="flops-efficiency")] = (
        None
    )
    memory: Annotated[
        Fraction | None, about("Fraction of the memory bandwidth, above 0 to 1", option="memory-efficiency")
    ] = None
    ideal: Annotated[bool | None, about("Both fractions are 1: the lower bound of time")] = None


# Keys of a file that `free` leaves open again: by group, or by the name of their option.

BATCH_PARTS = ("train.micro_batch", "train.grad_accum")
"""Keys that a group leaves open where the global batch is given: without it they make it, and it is what is learnt."""
FREED: Mapping[str, tuple[str, ...]] = {
    "layout": ("layout.", *BATCH_PARTS, *(f"rollout.{name}" for name in ("colocated", "tp", "pp", "ep", "offload"))),
    "gpus": (
        "gpus",
        "nodes",
        "layout.dp",
        *(f"{pool}.gpus" for pool in ("rollout", *POOLS)),
        "train.grad_accum",
    ),
}
"""Keys of each group, and sections all of whose keys are."""


def free_names() -> tuple[str, ...]:
    """Groups of keys that a search chooses, and the options of these keys."""
    options = (KEYS[key].option for key in (*free_keys(FREED), "train.global_batch"))
    return tuple(dict.fromkeys((*FREED, *(option for option in options if option))))


def free_keys(names: Iterable[str]) -> Iterator[str]:
    """The keys that names of groups or options stand for; none for a name that is neither."""
    for name in names:
        group = FREED.get(name)
        for each in KEYS.values():
            if group is None:
                found = each.option == name
            else:
                found = any(each.name == one or (one[-1] == "." and each.name.startswith(one)) for one in group)
            if found:
                yield each.name


class ScenarioFile(Section, frozen=True):
    """One question: a model, a job, its data, and the hardware or the limits."""

    model: Annotated[
        Name | InlineModel,
        about("Model by name, path or Hub id, e.g. llama-3.1-8b", both=True),
    ]
    server: Annotated[
        Name | None, about("Server, e.g. dell-xe9680-h100; instead of gpu", panel="Hardware", both=True)
    ] = None
    gpu: Annotated[
        Name | None,
        about("Accelerator, e.g. H100; auto: this machine's", panel="Hardware", both=True),
    ] = None
    slice: Annotated[
        Name | None,
        about(
            "Part of a GPU for each replica: a MIG profile such as 1g.10gb, time-slicing-4 or mps-4",
            panel="Hardware",
            wing=SERVING,
        ),
    ] = None
    gpus: Annotated[Degree | None, about("Number of GPUs; searched for if omitted", panel="Hardware", both=True)] = None
    nodes: Annotated[Degree | None, about("Number of servers", panel="Hardware", both=True)] = None
    host_memory_gib: Annotated[
        Positive | None,
        about("Host memory of a node in GiB, for offloading, or that its GPU shares", panel="Hardware", both=True),
    ] = None
    job: Annotated[Job | None, about("Training method; inference is sized by serve")] = None
    adapter: Annotated[Adapter | None, about("What is trained beside frozen weights; none: all weights are")] = None
    stack: Annotated[Name | None, about("Framework, e.g. hf-trainer, nemo, or a file")] = None
    precision: Annotated[Precision | None, about("Number format of the matrix products", both=True)] = None
    optimizer: Annotated[Name | None, about("Optimizer, e.g. adamw, muon, or a file")] = None
    attention: Annotated[Attention | None, about("Attention kernel")] = None
    loss: Annotated[Loss | None, about("Cross-entropy kernel; fused never holds float32 logits")] = None
    objective: Annotated[
        Objective | None, about("What plan calls the best; servers where there is a deadline, else cost", option=None)
    ] = None
    partial_servers: Annotated[
        bool | None, about("Also try numbers of GPUs that leave part of a server unused", panel="Hardware")
    ] = None
    free: Annotated[
        tuple[Annotated[str, named(free_names)], ...] | None,
        about("Keys of the file to leave open: layout, gpus, or single ones, e.g. recompute", panel="Layout"),
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
    environment: EnvironmentSection = field(default_factory=EnvironmentSection)
    critic: CriticSection = field(default_factory=CriticSection)
    reward: RewardSection = field(default_factory=RewardSection)
    reference: ReferenceSection = field(default_factory=ReferenceSection)
    teacher: TeacherSection = field(default_factory=TeacherSection)
    embedding: EmbeddingSection = field(default_factory=EmbeddingSection)
    serve: ServeSection = field(default_factory=ServeSection)


KEYS: Mapping[str, Key] = {each.name: each for each in declared_keys(ScenarioFile)}
"""Every key of a scenario by its dotted name; options, limits, help and the page of options are made of them."""
SECTIONS = frozenset(name for name, type_ in ScenarioFile.__annotations__.items() if is_section(type_))
"""Keys that hold groups of keys."""
NAMED_OR_GROUPS = frozenset({"model"})
"""Keys that hold a name or a group of keys."""


EXTENDS = "extends"
"""Names the file over which a scenario file stands: it is no key of the question, and gone when that is read."""


# The scenario file as a JSON Schema, by which editors complete and check it.


def scenario_json_schema() -> dict[str, Any]:
    """JSON Schema of the scenario file, for editors and CI.

    Keys that name profiles complete the built-in names and take any other name, path or repository; numbers with a
    unit may be text.
    """
    schema = json_schema(ScenarioFile)
    root = schema["$defs"][ScenarioFile.__name__]
    about_it = "Scenario file whose keys hold where this one has none; a key without a value takes that file's out"
    root["properties"] = {EXTENDS: {"type": "string", "description": about_it}, **root["properties"]}
    root["anyOf"] = [{"required": root.pop("required")}, {"required": [EXTENDS]}]
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
