"""The sections of a stack's file: kernels, states, host, overlap, memory, defaults and what it supports."""

from typing import Annotated, Literal

import msgspec

from xe_sizer.graph.casts import CastKernels, Fp8Recipe
from xe_sizer.graph.losses import divergence_names, log_probability_names, loss_names
from xe_sizer.graph.operators import CONTEXT_KINDS, ContextKind
from xe_sizer.graph.schedules import PipelineSchedule
from xe_sizer.graph.selective import RecomputeModule
from xe_sizer.laws.precision import trained_in
from xe_sizer.profiles.fields import named

# The upper ends are far above any real stack; they find a wrong unit or a slip of the keyboard.
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Factor = Annotated[float, msgspec.Meta(gt=0, le=2)]
SomeBytes = Annotated[float, msgspec.Meta(gt=0, le=64)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=64)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
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

    `attention_mask`: whether PyTorch's attention gets a mask where sequences of a micro-batch are padded, or always.
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
    mlp: Literal["whole", "tiled"] = "whole"
    adapters: Literal["modules", "in-place"] = "modules"
    predicted: Literal["all", "masked"] = "all"
    dispatch: Literal["per-expert", "per-place"] = "per-expert"
    context: ContextKind = "all-gather"
    split_experts: Literal["gather-tokens", "gather-copies"] = "gather-tokens"
    gathered_inputs: bool = False
    experts: Literal["grouped", "products", "in-turn", "unsplit", "loop"] = "grouped"
    mixer: Literal["fused", "copied"] = "fused"
    routing: Literal["eager", "fused"] = "eager"
    attention_mask: Literal["none", "padded", "always"] = "none"
    casts: CastKernels = "torchao"


class States(_Part, frozen=True):
    """Bytes per parameter that learns (`trained_*`) or not (`frozen_bytes`), and of one of an optimizer's moments.

    `quantised_upcast` where embedding, norms and head of a quantised model become float32, and the logits with them.
    `frozen_gradients` where the backward computes gradients of frozen weights too, and drops them.

    `autocast` keeps the weights in float32 and casts them to 16 bit in every micro-batch; `gradients_persist`
    where gradient buffers are allocated once and not freed between optimizer steps; `flat_gradients` where FSDP keeps
    adapters in one flat parameter with the frozen weights of their layer, and allocates gradients of all of it;
    `sharded_upcast` where FSDP's shards of what learns are float32 although less is loaded;
    `narrow_parameters` where products in 8 or 4 bit use weights that are kept so, in the place of 16-bit ones;
    `copies_on_host` where models that stand frozen beside the one that learns wait in host memory, and take its place
    for their passes, once a step;
    `copies_as_loaded` where models that stand frozen beside the one that learns are kept in the type that it is loaded
    in, and not in that of frozen weights;
    `updates_in_backward` where one GPU updates a weight as soon as its gradient is there, and frees that.
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
    updates_in_backward: bool
    copies_as_loaded: bool
    copies_on_host: bool
    narrow_parameters: bool
    gather_bytes: SomeBytes
    reduce_bytes: SomeBytes


class Host(_Part, frozen=True):
    """`sharded_adapter_us`: what an adapter factor adds to a pass where FSDP wraps each in a unit of its own."""

    forward_launch_us: Duration
    backward_launch_us: Duration
    step_overhead_ms: Duration
    micro_batch_overhead_ms: Duration
    sharded_adapter_us: Duration
    cpu_adam_gb_per_s_per_node: Rate


class Overlap(_Part, frozen=True):
    """Share of each exchange that compute hides when there is enough of it."""

    tensor_parallel: Share
    context_parallel: Share
    expert_parallel: Share
    pipeline: Share
    data_parallel: Share
    sharding: Share


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

    `slack_share` is what the allocator reserves beyond the live tensors, `error_share` how far these may be off,
    `optimizer_transient` what an update holds beside the states: a copy of what learns, float32 gradients, or
    nothing. `copied_gradients`: replicas hold every gradient in the buckets of their reduction too.
    """

    context_gib: TypicalCautious
    communicator_gib: TypicalCautious
    workspace_gib: TypicalCautious
    slack_share: TypicalCautiousShare
    error_share: Share
    bucket_gib: Gib
    optimizer_transient: Literal["multi-tensor", "float32-gradients", "fused"]
    copied_gradients: bool


class Defaults(_Part, frozen=True):
    """What the stack does where nobody says otherwise.

    reduces_whole_gradients : all-reduces them although ZeRO-1 shards the optimizer; else it scatters the sums
    splits_sequences : context parallelism is tried where nobody asks for it
    batch_per_gpu : sequences of a step on each GPU, its own micro-batch x accumulation; None: it has none
    counts_ends : embedding and head take a layer's place each where layers are spread over the stages of a pipeline;
    fills_stages_by_cost : stages take layers until they pass their share of the cost
    weights_dtype : what weights are loaded in, one of those that `loads` has; None where there is no choice
    zero : ZeRO stages among which a layout is searched; usual_zero : the one that several GPUs get; None: any of them
    usual_offload : what waits in host memory where whole layers are recomputed; None: as memory needs
    recompute : quantised_recompute where the base model is quantised, sharded_recompute where ZeRO-3 or FSDP gathers
    layers; None: as memory needs
    quantised_weights_dtype : what the rest of a quantised model is loaded in where that differs from `weights_dtype`
    quantiser : holds frozen weights in few bits for the jobs that do so
    freeze : parts of a model with an encoder of images that do not learn; splits_encoder : tensor-parallel ranks share
    the encoder's weights, else each has all of them; gradients_through_encoder : where adapters learn and layers are
    recomputed, the encoder's inputs are made to need gradients, so that the backward passes its frozen layers too
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
    block_scaled_recipe: Fp8Recipe | None = None
    freeze: tuple[PartName, ...] = ()
    splits_encoder: bool = False
    gradients_through_encoder: bool = False
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
    recomputation can be given
    hybrid_sharding : groups of data-parallel ranks can share a copy of what ZeRO shards each
    context_kinds : what its context-parallel ranks can exchange
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
    context_kinds: Annotated[tuple[ContextKind, ...], msgspec.Meta(min_length=1)] = CONTEXT_KINDS
    packing: bool = True
    packs_answers: bool = True
    recompute: Annotated[tuple[Recompute, ...], msgspec.Meta(min_length=1)] = (
        "none",
        "selective",
        "full",
    )
