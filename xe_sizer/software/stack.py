"""What a software stack does: kernels, states, overlap, defaults. Data, one YAML file a stack.

A stack names a `parent` and overrides what differs; the root of all is `generic`.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Self, get_args

import msgspec

from xe_sizer.fields import named
from xe_sizer.graph.inputs import CastKernels, Fp8Recipe
from xe_sizer.graph.model import SparseKind
from xe_sizer.graph.operators import (
    CONTEXT_KINDS,
    DIVERGENCES,
    LOG_PROBABILITIES,
    LOSSES,
    WIDENED,
    ContextKind,
    Kernels,
    Loss,
    PipelineSchedule,
    divergence_names,
    log_probability_names,
    loss_names,
)
from xe_sizer.graph.recompute import LayerTensor, RecomputeModule
from xe_sizer.laws.device import BF16, FLOAT32_FORMATS, FP16, FP32, NO_AUTOCAST, trained_in
from xe_sizer.software.release import Release
from xe_sizer.units import FLOAT32, MICRO, MILLI

# Annotations are no text here (`from __future__`): that of every key would be compiled in each start of the command.

# The section `rollout`: how reinforcement-learning jobs write answers between their steps.

PositiveShare = Annotated[float, msgspec.Meta(gt=0, le=1)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Sleep = Literal["none", "cache", "weights-to-host", "weights-dropped"]
Kept = Literal["params", "optimizer"]
Calls = Literal["all-at-once", "batch-by-batch"]
PoolName = Literal["critic", "reward", "reference", "teacher"]
POOLS: tuple[PoolName, ...] = get_args(PoolName)
"""Sections of a scenario that put a model beside the actor on GPUs of its own."""


def sleep_names() -> tuple[str, ...]:
    """What an engine may do between the phases, in the words of scenarios."""
    return get_args(Sleep)


class RolloutDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stack does reinforcement learning where nobody says otherwise.

    engine : writes the answers
    colocated : on the GPUs that train, in turn; else on GPUs of their own
    apart : whether it can write them on GPUs of their own; asynchronous : and while it trains
    in_flight : answers that are written while it trains go on with the new weights, and none of them is waited for
    sleep : what the engine gives back of the card where both share it: nothing, the cache of its keys and values, the
        weights to the host too, or all of it, so that the weights come from the trainer again
    gpu_memory_utilization : share of the card that the engine gets where both share it; None: what the trainer leaves
    max_sequences : answers that a replica writes at once; None: as many as the engine takes by itself
    offloads : what of the trainer waits in host memory while answers are written
    reference : of methods that can do without, in full training: a copy of the model, or none
    frozen_offload : whether models that do not learn wait in host memory but for their phase
    recomputes : the trainer computes the log-probabilities of answers again, or where those of the engine are not those
        of its own weights: it has weights of its own, or several steps learn from the same answers
    gathers : how sharded weights come together where the trainer itself writes the answers: once an iteration, or in
        every step of an answer
    padding : what the trainer pads answers to
    iteration_overhead_s : what passes between the phases of an iteration for the stack's own reasons
    step_ms, sequence_us : what a step of the engine takes of the host beyond that of a service, and for every answer
        that is being written, as it runs in the process of a trainer and hands out log-probabilities
    graphs : decode steps are replayed as CUDA graphs, where the engine has them
    calls : an engine is asked for all answers at once, or for batches of max_sequences, one after the other
    tensor_ms : to hand one tensor of the weights on to the engine, beside its bytes
    pools : models beside the actor that can have GPUs of their own
    reward_streams : a reward model on GPUs of its own rates each answer as it ends, beside those that are still written
    keeps_cache : answers that go on under new weights keep the cache of their keys and values; else it is read again
    """

    engine: str
    colocated: bool
    apart: bool
    asynchronous: bool
    in_flight: bool
    sleep: Sleep
    gpu_memory_utilization: PositiveShare | None
    max_sequences: Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None
    reference: Literal["copy", "none"]
    offloads: tuple[Kept, ...]
    frozen_offload: bool
    recomputes: Literal["always", "as-needed", "never"]
    gathers: Literal["once", "every-step"]
    padding: Literal["none", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len"]
    iteration_overhead_s: Duration
    step_ms: Duration
    sequence_us: Duration
    graphs: bool
    calls: Calls
    tensor_ms: Duration
    pools: tuple[PoolName, ...]
    reward_streams: bool
    keeps_cache: bool


# The other sections: kernels, states, host, overlap, memory, defaults and what it supports.

# The upper ends are far above any real stack; they find a wrong unit or a slip of the keyboard.
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Factor = Annotated[float, msgspec.Meta(gt=0, le=2)]
SomeBytes = Annotated[float, msgspec.Meta(gt=0, le=64)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=64)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Gib = Annotated[float, msgspec.Meta(ge=0, le=1e5)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Recompute = Literal["none", "selective", "full"]
Offloadable = Literal["none", "optimizer", "params", "activations"]
ZeroStages = Annotated[tuple[Literal[0, 1, 2, 3], ...], msgspec.Meta(min_length=1)]
PartName = Literal["vision", "projector", "language"]
PARALLEL_WAYS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
}  # layout key: what a stack's `supports` calls it


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class KernelChoice(_Part, frozen=True):
    """`attention_family` is the law in the accelerator's profile that the stack's flash kernel follows.

    `log_probabilities`: how jobs that compare answers get those of their tokens; `divergence`: how a job compares all
    logits with a teacher's.

    `adapters`: modules beside the projections, or in one function with them that writes gradients in place of what it
    has read.

    `kept`, `hosted`: of layers that run again, tensors that stay for their backward on the card, or in host memory.

    `pads_vocabulary`: the head has a multiple of at least 8 rows, whatever the tokenizer.

    `stops_early`: whole layers that run again stop before the last product, whose result no gradient needs.

    `attention_mask`: whether PyTorch's attention gets a mask where sequences of a micro-batch are padded, or always.

    `sparse_masked`, `sparse_dense`: kinds of sparse attention that run in PyTorch with a mask over all pairs, or attend
    to all tokens and leave the indexer out; others have kernels.
    """

    norm: Literal["fused", "eager"]
    rotary: Literal["fused", "eager"]
    activation: Literal["fused", "native", "eager"]
    loss: Annotated[str, named(loss_names)]
    log_probabilities: Annotated[str, named(log_probability_names)]
    divergence: Annotated[str, named(divergence_names)]
    attention: Literal["flash", "sdpa", "eager"]
    attention_family: Literal["flash-1", "flash-2", "flash-3", "sdpa"]
    fused_qkv: bool
    fused_gate_up: bool
    repeats_kv: bool
    softmax: Literal["float32", "fused"]
    dropout: bool
    selective: Literal["attention", "alternate"] | tuple[RecomputeModule, ...]
    kept: tuple[LayerTensor, ...] | None = None
    hosted: tuple[LayerTensor, ...] | None = None
    mlp: Literal["whole", "tiled"] = "whole"
    adapters: Literal["modules", "in-place"] = "modules"
    predicted: Literal["all", "masked"] = "all"
    dispatch: Literal["per-expert", "per-place"] = "per-expert"
    context: ContextKind = "all-gather"
    split_experts: Literal["gather-tokens", "gather-copies"] = "gather-tokens"
    gathered_inputs: bool = False
    experts: Literal["grouped", "products", "in-turn", "unsplit", "loop"] = "grouped"
    padded_routing: Literal["rows", "products"] = "rows"
    expert_tile: Annotated[float, msgspec.Meta(ge=0, le=1024)] = 0.0
    expert_side: Annotated[float, msgspec.Meta(ge=0, le=8192)] = 0.0
    expert_starts: Literal["at-tiles", "anywhere"] = "at-tiles"
    mixer: Literal["fused", "copied"] = "fused"
    accumulation: Literal["apart", "fused"] = "apart"
    routing: Literal["eager", "fused"] = "eager"
    combine: Literal["weighted", "summed"] = "weighted"
    activation_input: Literal["wide", "narrow"] = "wide"
    stops_early: bool = False
    pads_vocabulary: bool = True
    attention_mask: Literal["none", "padded", "always"] = "none"
    sparse_masked: tuple[SparseKind, ...] = ()
    sparse_dense: tuple[SparseKind, ...] = ()
    casts: CastKernels = "torchao"


class States(_Part, frozen=True):
    """Bytes per parameter that learns (`trained_*`) or not (`frozen_bytes`), and of one of an optimizer's moments.

    `quantised_upcast` where embedding, norms and head of a quantised model become float32, and the logits with them.
    `frozen_gradients` where the backward computes gradients of frozen weights too, and drops them.

    `autocast` keeps the weights in float32 and casts them to 16 bit in every micro-batch; `gradients_persist`
    where gradient buffers are allocated once and not freed between optimizer steps; `flat_gradients` where FSDP keeps
    adapters in one flat parameter with the frozen weights of their layer, and allocates gradients of all of it;
    `sharded_upcast` where FSDP's shards of what learns are float32 although less is loaded;
    `reentrant` where layers are recomputed in a function of autograd's own (use_reentrant of torch.utils.checkpoint)
    around the units that FSDP wraps, whose hooks then hold what a frozen layer reads until the backward is through;
    `gathered_copies` where what was gathered is copied into tensors of its own, and gradients together before they are
    reduced, as FSDP2 does;
    `narrow_parameters` where products in 8 or 4 bit use weights that are kept so, in the place of 16-bit ones;
    `copies_on_host` where models that stand frozen beside the one that learns wait in host memory, and take its place
    for their passes, once a step;
    `copies_as_loaded` where models that stand frozen beside the one that learns are kept in the type that it is loaded
    in, and not in that of frozen weights;
    `gradients_on_host` where gradients that ZeRO-2 or 3 shards wait in host memory beside an offloaded optimizer, which
    takes them there in every micro-batch; else they go there once a step and the card keeps its own;
    `gathers`: what ZeRO-3 and FSDP gather at once, the layer and the next one with embedding and head for all of the
    pass, or as a compiler orders it the matrix of a product and that of the next one, whose gradients are reduced as
    soon as they are there;
    `updates_in_backward` where one GPU updates a weight as soon as its gradient is there, and frees that;
    `fresh_gradient_bytes` as the backward makes gradients, where they are kept in another type.
    """

    trained_weight_bytes: SomeBytes
    gradient_bytes: SomeBytes
    master_bytes: Bytes
    moment_bytes: SomeBytes
    frozen_bytes: SomeBytes
    adapter_weight_bytes: SomeBytes
    autocast: bool
    frozen_gradients: bool
    quantised_upcast: bool
    gradients_persist: bool
    flat_gradients: bool
    sharded_upcast: bool
    reentrant: bool
    updates_in_backward: bool
    gathered_copies: bool
    copies_as_loaded: bool
    copies_on_host: bool
    gradients_on_host: bool
    narrow_parameters: bool
    gather_bytes: SomeBytes
    reduce_bytes: SomeBytes
    fresh_gradient_bytes: SomeBytes | None = None
    gathers: Literal["layers", "matrices"] = "layers"


class Host(_Part, frozen=True):
    """Time that Python takes around kernels.

    sharded_adapter_us : what an adapter factor adds to a pass where FSDP wraps each in a unit of its own
    gathered_module_us : hooks of a linear layer in a pass where ZeRO-3 gathers every module by itself
    expert_layer_us : what the accelerator waits in a layer with experts, forward and backward together, until the host
    knows how many tokens each gets; nothing where another micro-batch runs meanwhile
    leaf_experts : the experts of a layer are one such module; else each of their matrices is
    """

    forward_launch_us: Duration
    backward_launch_us: Duration
    step_overhead_ms: Duration
    micro_batch_overhead_ms: Duration
    sharded_adapter_us: Duration
    gathered_module_us: Duration
    expert_layer_us: Duration
    leaf_experts: bool
    cpu_adam_gb_per_s_per_node: Rate


Exchange = Literal[
    "tensor-parallel", "context-parallel", "expert-parallel", "pipeline", "data-parallel", "updated-weights", "sharding"
]  # fmt: skip
EXCHANGES: tuple[str, ...] = get_args(Exchange)
OverlapWord = Literal["on", "off", Exchange]


class Overlap(_Part, frozen=True):
    """Share of each exchange that compute hides when there is enough of it.

    data_parallel : of the reduction of gradients; updated_weights : of the gather of weights that ZeRO-1 and 2 have
    updated; sharding : of the gathers and reductions of ZeRO-3 and FSDP
    switched_on : shares where somebody asks for that, where they differ; switched_off : what is hidden all the same
    where somebody turns that off
    """

    tensor_parallel: Share
    context_parallel: Share
    expert_parallel: Share
    pipeline: Share
    data_parallel: Share
    updated_weights: Share
    sharding: Share
    switched_on: dict[str, Share] = {}
    switched_off: dict[str, Share] = {}

    def switched(self, asked: Collection[str]) -> Self:
        """The shares where these exchanges are hidden, or all that can be (on), and no others."""
        shares = {}
        for exchange in EXCHANGES:
            name = exchange.replace("-", "_")
            on = self.switched_on.get(name, getattr(self, name))
            shares[name] = on if {"on", exchange} & set(asked) else self.switched_off.get(name, 0.0)
        return msgspec.structs.replace(self, **shares)

    @property
    def can_hide(self) -> tuple[str, ...]:
        """Exchanges that it hides where somebody asks for it."""
        every = self.switched(("on",))
        return tuple(name for name in EXCHANGES if getattr(every, name.replace("-", "_")) > 0)


class Boundaries(_Part, frozen=True):
    """How the stages of a pipeline hand tensors on.

    scattered : where every tensor-parallel rank has the whole tensor, each sends its part, and they gather it after
    paired : what a stage sends to a neighbour and what it gets from it cross at once; else one waits for the other
    """

    scattered: bool
    paired: bool


class StackFactors(_Part, frozen=True):
    """Factors on the accelerator's laws; 1 means as measured. `experts` is for their grouped products."""

    matmul: Factor
    experts: Factor
    attention: Factor
    memory_bound: Factor
    collectives: Factor


class TypicalCautious(_Part, frozen=True):
    """A size [GiB] that varies between runs: what is usual, and what a verdict must reckon with."""

    typical: Gib
    cautious: Gib


class TypicalCautiousShare(_Part, frozen=True):
    """The same for a share."""

    typical: Share
    cautious: Share


class MemoryAround(_Part, frozen=True):
    """Memory beside the tensors.

    `tensor_scale` is measured over predicted live tensors, 1 where nothing was fitted (`calibrate`). `slack_share` is
    what the allocator reserves beyond them, `optimizer_transient` what an update holds
    beside the states: a copy of what learns, float32 gradients, or nothing. `copied_gradients`: replicas hold every
    gradient in the buckets of their reduction too.
    """

    context_gib: TypicalCautious
    communicator_gib: TypicalCautious
    workspace_gib: TypicalCautious
    tensor_scale: Annotated[float, msgspec.Meta(gt=0, le=3)]
    slack_share: TypicalCautiousShare
    bucket_gib: Gib
    optimizer_transient: Literal["multi-tensor", "float32-gradients", "fused"]
    copied_gradients: bool


class Defaults(_Part, frozen=True):
    """What the stack does where nobody says otherwise.

    single_gpu_optimizer : of all weights on one GPU, where recipes for that have another one
    reduces_whole_gradients : all-reduces them although ZeRO 1 or 2 shares the update out; else it scatters the sums
    splits_sequences : context parallelism is tried where nobody asks for it
    batch_per_gpu : sequences of a step on each GPU, its own micro-batch x accumulation; None: it has none
    counts_ends : embedding and head take a layer's place each where layers are spread over the stages of a pipeline;
    fills_stages_by_cost : stages take layers until they pass their share of the cost
    weights_dtype : what weights are loaded in, one of those that `loads` has; None where there is no choice
    half_gradients : precisions of runs that keep gradients in 16 bit, where `states` has them in float32
    zero : ZeRO stages among which a layout is searched; usual_zero : the one that several GPUs get; None: any of them
    usual_offload : what waits in host memory where whole layers are recomputed; None: as memory needs
    recompute : quantised_recompute where the base model is quantised, sharded_recompute where ZeRO-3 or FSDP gathers
    layers; None: as memory needs
    quantised_weights_dtype : what the rest of a quantised model is loaded in where that differs from `weights_dtype`
    quantiser : holds frozen weights in few bits for the jobs that do so
    freeze : parts of a model with an encoder of images that do not learn; splits_encoder : tensor-parallel ranks share
    the encoder's weights, else each has all of them; gradients_through_encoder : where adapters learn and layers are
    recomputed, the encoder's inputs are made to need gradients, so that the backward passes its frozen layers too
    lora_dropout : share of an adapter's input that dropout zeroes
    prompt_embedding : width of the virtual tokens of a prompt encoder; None: that of the model
    fp8_recipe : how operands in 8 bit are scaled; block_scaled_recipe: where the accelerator scales blocks itself
    """

    precision: Annotated[str, named(trained_in)]
    optimizer: str
    padding: Literal[
        "packed", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len", "grouped-by-length", "none"
    ]  # fmt: skip
    sequence_parallel: bool
    splits_sequences: bool
    zero: ZeroStages
    reduces_every_micro_batch: bool
    reduces_whole_gradients: bool
    pad_to_multiple: AtLeastOne
    counts_ends: bool
    fills_stages_by_cost: bool
    lora_rank: AtLeastOne
    lora_targets: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    quantiser: str
    fp8_recipe: Fp8Recipe
    half_gradients: tuple[str, ...] = ()
    block_scaled_recipe: Fp8Recipe | None = None
    freeze: tuple[PartName, ...] = ()
    splits_encoder: bool = False
    gradients_through_encoder: bool = False
    single_gpu_optimizer: str | None = None
    lora_dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    prompt_embedding: AtLeastOne | None = None
    batch_per_gpu: AtLeastOne | None = None
    weights_dtype: str | None = None
    usual_zero: Literal[0, 1, 2, 3] | None = None
    usual_offload: Offloadable | None = None
    recompute: Recompute | None = None
    quantised_recompute: Recompute | None = None
    quantised_weights_dtype: str | None = None
    sharded_recompute: Recompute | None = None

    def recompute_of(self, *, quantised: bool, sharded: bool) -> Recompute | None:
        """What is recomputed where nobody says; None: as memory needs."""
        special = (self.quantised_recompute if quantised else None) or (self.sharded_recompute if sharded else None)
        return special or self.recompute


class Supports(_Part, frozen=True):
    """What the stack can do; `optimizers` and `schedules` (of a pipeline) are those that it has.

    several_gpus : it trains on more than one; packing : it puts samples end to end in sequences of full length;
    packs_answers : also those of jobs that compare answers
    recompute : those that it has a switch for, which is what advice names; recompute_modules : those that selective
    recomputation can be given; recompute_tensors : those that can be kept by name, on the card or in host memory
    hybrid_sharding : groups of data-parallel ranks can share a copy of what ZeRO shards each
    context_kinds : what its context-parallel ranks can exchange; splits_one_packed : of packed sequences they split one
    at a time, a micro-batch of 1
    sharded_stages : ZeRO-2 and 3 (FSDP) go with pipelines: a stage is gathered once a step
    offload_from_zero : the least ZeRO stage with which it offloads
    """

    tensor_parallel: bool
    pipeline_parallel: bool
    context_parallel: bool
    expert_parallel: bool
    zero: ZeroStages
    offload: Annotated[tuple[Offloadable, ...], msgspec.Meta(min_length=1)]
    optimizers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    schedules: Annotated[tuple[PipelineSchedule, ...], msgspec.Meta(min_length=1)]
    several_gpus: bool = True
    offload_from_zero: Literal[0, 1, 2, 3] = 0
    sharded_stages: bool = False
    hybrid_sharding: bool = True
    recompute_modules: tuple[RecomputeModule, ...] = ()
    recompute_tensors: tuple[LayerTensor, ...] = ()
    context_kinds: Annotated[tuple[ContextKind, ...], msgspec.Meta(min_length=1)] = CONTEXT_KINDS
    splits_one_packed: bool = False
    packing: bool = True
    packs_answers: bool = True
    recompute: Annotated[tuple[Recompute, ...], msgspec.Meta(min_length=1)] = (
        "none",
        "selective",
        "full",
    )


# Objectives: what a job makes of the logits.


class Objective(Enum):
    """The cross-entropy of the next token, or what else a job computes from the logits.

    Log-probabilities of answers, in pairs or single ones, alone or beside a cross-entropy of the chosen ones (odds
    ratio); a divergence from a teacher's logits; or from its likeliest words alone; or the
    logits themselves, which something else reads.
    """

    NEXT_TOKEN = "next token"
    LOG_PROBABILITIES = "log-probabilities"
    ANSWERS = "log-probabilities of single answers"
    ODDS_RATIO = "odds ratio"
    DIVERGENCE = "divergence"
    LOGITS = "logits"
    POLICY = "log-probabilities of a policy's own answers"
    FEW_WORDS = "log-probabilities of a teacher's likeliest words"


# Policies of recomputation.


class RecomputePolicy(_Part, frozen=True):
    """What a policy of the stack keeps of a layer that runs again, beside its input: on the card, or in host memory."""

    keep: tuple[LayerTensor, ...] = ()
    offload: tuple[LayerTensor, ...] = ()


# The stack, and its file.

LOADS = "loads"
Loads = dict[str, dict[str, Any] | None]
GradientTypes = dict[Literal["full", "half"], dict[str, dict[str, Any]] | None]
GRADIENT_TYPES = {"gradients": "gradient_bytes", "reductions": "reduce_bytes"}
"""Choices of a stack for what gradients are kept and exchanged in, and which of its `states` say so."""
CHOICES_BY_FORMAT: Mapping[str, Any] = {LOADS: Loads, **dict.fromkeys(GRADIENT_TYPES, GradientTypes)}
"""Choices that backends of a stack may have otherwise, with the form of each."""
DOES = {"gradients": "keep", "reductions": "exchange"}
"""What a stack does with gradients by these choices, in messages."""
OF_GRADIENTS = {"train.gradient_dtype": "gradients", "train.reduce_dtype": "reductions"}
"""Keys of a scenario that make these choices."""
DEEPSPEED = "deepspeed"
"""What `backends` calls the library whose settings other tools name in their files."""
MOST_UNCERTAINTY = 10  # chosen: a relative error beyond which times say nothing


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stack, complete.

    uncertainty : its relative error, assumed unless `calibrated_on` names measurements
    expert_imbalance : the busiest rank's load over the mean
    tuned_expert_spread : standard deviation of experts' loads over their mean where a trained router picks them
    default : stands for all where none is named
    releases : what older ones did otherwise; release : that was asked for; None: the newest
    loads : what `states` are where weights are loaded in a number format, by its name
    mixed_precision : what `states` are with autocast and without, whatever is loaded; None: there is no choice
    gradients, reductions : what its sections are where gradients are kept, and exchanged, in float32 or in the 16-bit
        type of the run; None: there is no choice. With `gradients` alone they are exchanged as they are kept
    backends : what its sections are where another library shares states out, by its name; None: it cannot run on that
    backend : the one of them that the sections are of; a file that names one builds on its parent as it runs on that
    recompute_policies : what of a layer stays for its backward, by the names that the stack gives to such choices
    fused : what `kernels` are where somebody fuses a part of them, by what people call it
    aliases : other names of it, and tools that run on it
    lighter : a stack for the same scripts that holds less for every weight
    origins : where figures of this file come from, by section or dotted key, each text after one word for it: fitted,
        measured, published, counted, assumed or defined
    settings : what the stack calls the settings of a scenario, by dotted key, where that is not plain
    """

    name: str
    describes: str
    source: str
    kernels: KernelChoice
    states: States
    host: Host
    overlap: Overlap
    boundaries: Boundaries
    efficiency: StackFactors
    memory: MemoryAround
    defaults: Defaults
    supports: Supports
    rollout: RolloutDefaults
    uncertainty: Annotated[float, msgspec.Meta(gt=0, le=MOST_UNCERTAINTY)]
    expert_imbalance: Annotated[float, msgspec.Meta(ge=1, le=1000)]
    tuned_expert_spread: Annotated[float, msgspec.Meta(ge=0, le=10)]
    loads: Loads = {}
    mixed_precision: dict[Literal["mixed", "pure"], dict[str, Any]] | None = None
    gradients: GradientTypes | None = None
    reductions: GradientTypes | None = None
    backends: dict[str, dict[str, dict[str, Any]] | None] = {}
    backend: str | None = None
    recompute_policies: dict[str, RecomputePolicy] = {}
    fused: dict[str, dict[str, Any]] = {}
    parent: str | None = None
    releases: tuple[Release, ...] = ()
    release: str | None = None
    default: bool = False
    aliases: tuple[str, ...] = ()
    lighter: str | None = None
    calibrated_on: str | None = None
    origins: dict[str, str] = {}
    settings: dict[str, str] = {}

    @property
    def forward_launch_s(self) -> float:
        return self.host.forward_launch_us * MICRO

    @property
    def backward_launch_s(self) -> float:
        return self.host.backward_launch_us * MICRO

    @property
    def step_overhead_s(self) -> float:
        return self.host.step_overhead_ms * MILLI

    @property
    def micro_batch_overhead_s(self) -> float:
        return self.host.micro_batch_overhead_ms * MILLI

    @property
    def sharded_adapter_s(self) -> float:
        return self.host.sharded_adapter_us * MICRO

    @property
    def gathered_module_s(self) -> float:
        return self.host.gathered_module_us * MICRO

    @property
    def expert_layer_s(self) -> float:
        return self.host.expert_layer_us * MICRO

    @property
    def weights_dtypes(self) -> tuple[str, ...]:
        """Number formats that weights can be loaded in, where there is a choice."""
        return tuple(name for name, states in self.loads.items() if states is not None)

    @property
    def runs_on(self) -> tuple[str, ...]:
        """Libraries that can share out its states, where there is a choice."""
        return tuple(name for name, sections in self.backends.items() if sections is not None)

    @property
    def loads_alike(self) -> bool:
        """Whether what weights are loaded in changes nothing, since another type takes its place."""
        kinds = [states for states in self.loads.values() if states is not None]
        return len(kinds) > 1 and all(states == kinds[0] for states in kinds)

    def on_backend(self, name: str) -> Self:
        """The stack where one of its backends shares states out."""
        changes = self.backends[name] or {}
        of_types = [each for each in CHOICES_BY_FORMAT if each in changes]
        choices = {each: (getattr(self, each) or {}) | changes[each] for each in of_types}
        sections = {each: differs for each, differs in changes.items() if each not in choices}
        return msgspec.structs.replace(self._changed(sections), backend=name, **choices)

    def loaded_in(self, dtype: str) -> Self:
        """The stack where weights are loaded in one of its number formats."""
        states = _with(self.states, self.loads[dtype] or {})
        defaults = msgspec.structs.replace(self.defaults, weights_dtype=dtype)
        return msgspec.structs.replace(self, states=states, defaults=defaults)

    @property
    def mixes(self) -> bool:
        """Whether autocast can be on or off; DeepSpeed's engine casts what it is given."""
        return self.mixed_precision is not None and self.backend != DEEPSPEED

    def in_mixed_precision(self, name: str) -> Self:
        """The stack with autocast to a number format, or without it: none."""
        changes = (self.mixed_precision or {}).get("pure" if name == NO_AUTOCAST else "mixed", {})
        return msgspec.structs.replace(self, states=_with(self.states, changes))

    def gradient_dtype(self, choice: str, precision: str) -> str | None:
        """What gradients are kept or exchanged in, one of `GRADIENT_TYPES`; None where there is no choice."""
        if getattr(self, choice) is None:
            return None
        wide = precision in FLOAT32_FORMATS or getattr(self.states, GRADIENT_TYPES[choice]) >= FLOAT32
        return FP32 if wide else _half(precision)

    def gradient_dtypes(self, choice: str, precision: str) -> dict[str, Mapping[str, Mapping[str, Any]]]:
        """What sections are where gradients are kept or exchanged otherwise, by the number formats that can be."""
        words = {FP32: "full"} if precision in FLOAT32_FORMATS else {FP32: "full", _half(precision): "half"}
        has = getattr(self, choice) or {}
        return {dtype: sections for dtype, word in words.items() if (sections := has.get(word)) is not None}

    def with_gradients(self, choice: str, dtype: str, precision: str) -> Self:
        """The stack with gradients kept or exchanged in one of `gradient_dtypes`."""
        return self._changed(self.gradient_dtypes(choice, precision)[dtype])

    def _changed(self, sections: Mapping[str, Mapping[str, Any]]) -> Self:
        parts = {name: _with(getattr(self, name), differs) for name, differs in sections.items()}
        return msgspec.structs.replace(self, **parts)

    def with_fused(self, names: Iterable[str]) -> Self:
        """The stack with fused kernels by what people call them, one after the other."""
        kernels = self.kernels
        for name in names:
            kernels = msgspec.structs.replace(kernels, **self.fused[name])
        return msgspec.structs.replace(self, kernels=kernels)

    def for_copies(self) -> Self:
        """The stack as it keeps models that stand frozen beside the one that learns."""
        if not self.states.copies_as_loaded:
            return self
        states = msgspec.structs.replace(self.states, frozen_bytes=self.states.trained_weight_bytes)
        return msgspec.structs.replace(self, states=states)

    def loss_of(self, objective: Objective) -> Loss:
        """The kernel of what a job makes of the logits."""
        chosen = self.kernels
        if objective is Objective.NEXT_TOKEN:
            return LOSSES[chosen.loss]
        if objective is Objective.LOGITS:
            return WIDENED
        if objective is Objective.DIVERGENCE:
            return DIVERGENCES[chosen.divergence]
        kernel = LOG_PROBABILITIES[chosen.log_probabilities]
        if objective is Objective.ANSWERS:
            return kernel.of_single_answers()
        if objective is Objective.POLICY:
            return kernel.of_policy()
        return kernel.with_likelihood() if objective is Objective.ODDS_RATIO else kernel

    def graph_kernels(
        self, attention: str, fine_tunes: bool = False, objective: Objective = Objective.NEXT_TOKEN
    ) -> Kernels:
        """The graph's view of the stack, with the attention implementation that the job chose.

        fine_tunes : nothing evens out the loads of experts, whose router is trained
        objective : what the job makes of the logits
        """
        return Kernels.chosen(
            self.kernels,
            attention=attention,
            loss=self.loss_of(objective),
            expert_imbalance=self.expert_imbalance,
            expert_spread=self.tuned_expert_spread if fine_tunes else 0.0,
        )


def _half(precision: str) -> str:
    """The 16-bit type of a run, which products in fewer bits leave to all else."""
    return FP16 if precision == FP16 else BF16


def _with(part: Any, changes: Mapping[str, Any]) -> Any:
    """A section of a stack with what its file says instead, lists of the file as they are read."""
    return msgspec.convert(msgspec.to_builtins(part) | changes, type(part))
