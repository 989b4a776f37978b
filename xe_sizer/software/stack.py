"""What a software stack does: kernels, states, overlap, defaults. Data, one YAML file a stack.

A stack names a `parent` and overrides what differs; the root of all is `generic`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from xe_sizer.errors import InputError, Location, Problem, Where, did_you_mean, place_of
from xe_sizer.graph.casts import CastKernels, Fp8Recipe
from xe_sizer.graph.losses import LOSSES, loss_names
from xe_sizer.graph.operators import Kernels
from xe_sizer.graph.schedules import PipelineSchedule
from xe_sizer.laws.precision import trained_in
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.fields import named
from xe_sizer.profiles.finder import BUILT_IN, Finder, default_name
from xe_sizer.profiles.inherited import Release, load_inherited
from xe_sizer.profiles.source import Document, KeyPath
from xe_sizer.software.optimizer import optimizer_names
from xe_sizer.units import MICRO, MILLI

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

    `attention_mask`: whether PyTorch's attention gets a mask where sequences of a micro-batch are padded, or always.
    """

    norm: Literal["fused", "eager"]
    rotary: Literal["fused", "eager"]
    activation: Literal["fused", "native", "eager"]
    loss: Annotated[str, named(loss_names)]
    attention: Literal["flash", "sdpa", "eager"]
    attention_family: Literal["flash-1", "flash-2", "flash-3", "sdpa"]
    fused_qkv: bool
    fused_gate_up: bool
    repeats_kv: bool
    softmax: Literal["float32", "fused"]
    dropout: bool
    selective: Literal["attention", "alternate"]
    mlp: Literal["whole", "tiled"] = "whole"
    dispatch: Literal["per-expert", "per-place"] = "per-expert"
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
    counts_ends : embedding and head take a layer's place each where layers are spread over the stages of a pipeline;
    fills_stages_by_cost : stages take layers until they pass their share of the cost
    weights_dtype : what weights are loaded in, one of those that `loads` has; None where there is no choice
    zero : ZeRO stages among which a layout is searched; usual_zero : the one that several GPUs get; None: any of them
    usual_offload : what waits in host memory where whole layers are recomputed; None: as memory needs
    recompute : quantised_recompute where the base model is quantised, sharded_recompute where ZeRO-3 or FSDP gathers
    layers; None: as memory needs
    quantised_weights_dtype : what the rest of a quantised model is loaded in where that differs from `weights_dtype`
    quantiser : holds frozen weights in few bits for the jobs that do so
    fp8_recipe : how operands in 8 bit are scaled; block_scaled_recipe: where the accelerator scales blocks itself
    """

    precision: Annotated[str, named(trained_in)]
    optimizer: str
    padding: Literal[
        "packed", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len", "grouped-by-length", "none"
    ]  # fmt: skip
    sequence_parallel: bool
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

    several_gpus : it trains on more than one; packing : it puts samples end to end in sequences of full length
    recompute : those that it has a switch for, which is what advice names
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
    packing: bool = True
    recompute: Annotated[tuple[Recompute, ...], msgspec.Meta(min_length=1)] = (
        "none",
        "selective",
        "full",
    )


class Stack(_Part, frozen=True):
    """One stack, complete.

    uncertainty : its relative error, assumed unless `calibrated_on` names measurements
    expert_imbalance : the busiest rank's load over the mean
    tuned_expert_spread : standard deviation of experts' loads over their mean where a trained router picks them
    default : stands for all where none is named
    releases : what older ones did otherwise; release : that was asked for; None: the newest
    loads : what `states` are where weights are loaded in a number format, by its name
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
    uncertainty: Annotated[float, msgspec.Meta(gt=0, le=10)]
    expert_imbalance: Annotated[float, msgspec.Meta(ge=1, le=1000)]
    tuned_expert_spread: Annotated[float, msgspec.Meta(ge=0, le=10)]
    loads: dict[str, dict[str, Any] | None] = {}
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
    def weights_dtypes(self) -> tuple[str, ...]:
        """Number formats that weights can be loaded in, where there is a choice."""
        return tuple(name for name, states in self.loads.items() if states)

    def loaded_in(self, dtype: str) -> "Stack":
        """The stack where weights are loaded in one of its number formats."""
        states = msgspec.structs.replace(self.states, **(self.loads[dtype] or {}))
        defaults = msgspec.structs.replace(self.defaults, weights_dtype=dtype)
        return msgspec.structs.replace(self, states=states, defaults=defaults)

    def with_fused(self, names: Iterable[str]) -> "Stack":
        """The stack with fused kernels by what people call them, one after the other."""
        kernels = self.kernels
        for name in names:
            kernels = msgspec.structs.replace(kernels, **self.fused[name])
        return msgspec.structs.replace(self, kernels=kernels)

    def graph_kernels(self, attention: str, fine_tunes: bool = False) -> Kernels:
        """The graph's view of the stack, with the attention implementation that the job chose.

        fine_tunes : nothing evens out the loads of experts, whose router is trained
        """
        return Kernels.chosen(
            self.kernels,
            attention=attention,
            loss=LOSSES[self.kernels.loss],
            expert_imbalance=self.expert_imbalance,
            expert_spread=self.tuned_expert_spread if fine_tunes else 0.0,
        )


def stack_names() -> tuple[str, ...]:
    return BUILT_IN.names("stack")


def default_stack() -> str:
    return default_name("stack")


def load_stack(name: str, where: Where = None, finder: Finder | None = None) -> Stack:
    """The stack of that name, of that name and release (nemo@24.07), or of a path to a user's own stack file.

    Raises
    ------
    InputError : unknown name; problems in the file
    """
    stack = load_inherited("stack", Stack, name, where, finder, _contradictions)
    return stack.loaded_in(stack.defaults.weights_dtype) if stack.defaults.weights_dtype else stack


def _contradictions(stack: Stack, document: Document, finder: Finder) -> Iterator[Problem]:
    """Optimizers and stacks that nobody knows, states that are none, and defaults that the stack itself cannot do."""
    yield from _misloaded(stack, document)
    if stack.lighter is not None and finder.find("stack", stack.lighter) is None:
        where = document.locate(("lighter",))
        yield Problem(f"unknown stack '{stack.lighter}'", place_of(where), finder.suggestion("stack", stack.lighter))
    for index, name in enumerate(stack.supports.optimizers):
        if name not in optimizer_names(finder):
            where = document.locate(("supports", "optimizers", index))
            yield Problem(f"unknown optimizer '{name}'", place_of(where), finder.suggestion("optimizer", name))
    known, wanted = stack.supports.optimizers, stack.defaults.optimizer
    if wanted not in known:
        hint = did_you_mean(wanted, known) or f"it has {', '.join(known)}"
        where = document.locate(("defaults", "optimizer"))
        yield Problem(f"the default optimizer '{wanted}' is not among those that it supports", place_of(where), hint)
    for stage in {*stack.defaults.zero, stack.defaults.usual_zero} - {None}:
        if stage not in stack.supports.zero:
            where = document.locate(("defaults", "zero"))
            yield Problem(f"the default ZeRO stage {stage} is not among those that it supports", where)


def _misloaded(stack: Stack, document: Document) -> Iterator[Problem]:
    """Weights and fused kernels that cannot be what the stack's file says."""
    loads = {name: states for name, states in stack.loads.items() if states}
    yield from _changed("loads", loads, stack.states, document)
    yield from _changed("fused", stack.fused, stack.kernels, document)
    for key in ("weights_dtype", "quantised_weights_dtype"):
        dtype = getattr(stack.defaults, key)
        if dtype is not None and dtype not in stack.weights_dtypes:
            where = document.locate(("defaults", key))
            hint = f"it has {', '.join(stack.weights_dtypes)}" if stack.loads else None
            yield Problem(f"'loads' does not say what weights in {dtype} take", place_of(where), hint)


def _changed(section: str, rows: Mapping[str, Mapping[str, Any]], part: _Part, document: Document) -> Iterator[Problem]:
    """What is wrong with changes of a part of the stack."""
    for name, changes in rows.items():
        whole = msgspec.to_builtins(part) | changes
        locate = partial(_below, document, (section, name))
        try:
            convert(whole, type(part), locate)
        except InputError as error:
            yield from error.problems


def _below(document: Document, above: KeyPath, path: KeyPath, *, key: bool = False) -> Location:
    """Where a path below another stands."""
    return document.locate((*above, *path), key=key)
