"""What an inference engine does: kernels, host, batching, memory. Data, one YAML file an engine.

An engine names a `parent` and overrides what differs; the root of all is `generic-engine`.
"""

import math
from typing import Annotated, Literal, Self

import msgspec

from xe_sizer.graph.model import WIDE_STATES, SparseKind, StateSpace
from xe_sizer.software.number_formats import FORMATS, Format
from xe_sizer.software.release import Release, split_release
from xe_sizer.units import GIB, MICRO, MILLI

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Factor = Annotated[float, msgspec.Meta(gt=0, le=2)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Gib = Annotated[float, msgspec.Meta(ge=0, le=1e4)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class EngineKernels(_Part, frozen=True):
    """Kernels as `graph.operators.Kernels` names them; `attention` is that of the prefill, `decode` of the cache.

    `decode` split over the keys, or per-head: the same, reading keys and values for every query head.
    `fp8_per_head`: generations on which a cache of 8-bit floats is read by kernels that are per-head. `fp8_widened`:
    elements of it that a multiprocessor widens in a clock, by generation; on others it streams as the law has it.
    `fused_casts` where quantising activations is part of the kernel before; else it is a kernel of its own.
    `attention_mask`: whether PyTorch's attention gets a mask for padding and windows, with which it works on all pairs.
    `windows` where layers with a sliding window keep no more than it.
    `experts` together in grouped products, in a loop over those that a token picked, or loop-all: over all of them.
    `expert_tile`: rows that a grouped product rounds each expert's share up to.
    `reserved_below`: ranks that split an expert, below which grouped products of block-scaled weights run over all
    rows that could be needed wherever tokens go; 0: never. `reserved_on`: generations of accelerators that do, of any
    size on those of `ungated_on`, whose scales are powers of two.
    `tuned_by`: engine whose tables of block sizes its grouped products in Triton look for, in `software.tuned_experts`;
    empty: they need none. `tuned_on`, `tuned_formats`: generations of accelerators on which, and formats of weights in
    which they run in Triton.
    `expert_spread`: standard deviation of how often experts are picked, over the mean; of models, not of the engine.
    `adapter_us`: a grouped kernel of LoRA adapters takes at least so long.
    `sparse_on`: generations of accelerators with kernels of attention whose queries pick their keys, by its kind;
    `sparse_else`: on others the engine masks all keys that were not picked, attends to all, or refuses the model.
    `sparse_heads`: of a rank, to which those of DeepSeek's sparse attention pad, by generation.
    `block_rates`: shares of the 16-bit FLOP rate that kernels reach in which queries of prompts pick blocks of keys,
    from a cache in 16 and in 8 bit, by its kind and by generation; on others as other attention.
    `fused_scans`: kinds of mixer whose chunked scan is one kernel, each with the generations that have it.
    `vector_bytes`: that a multiprocessor reads in a clock at most in products of few rows; 0: as much as there is.
    `packed_flops`: of one in a clock, in products of weights narrower than the activations, which its lanes unpack
    whatever its tensor cores could do; 0: as the accelerator's law.
    `all_logits` where the prefill makes logits for every token of the prompt, not for the last alone.
    """

    norm: Literal["fused", "eager"]
    rotary: Literal["fused", "eager", "in-attention"]
    activation: Literal["fused", "native", "eager"]
    residual: Literal["apart", "in-norm"]
    attention: Literal["flash", "sdpa", "eager"]
    attention_family: Literal["flash-1", "flash-2", "flash-3"]
    attention_mask: Literal["none", "padded", "always"]
    decode: Literal["split", "per-head"]
    fp8_per_head: tuple[str, ...]
    fp8_widened: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1024)]]
    cache: Literal["paged", "concatenated", "in-attention"]
    fused_qkv: bool
    fused_gate_up: bool
    repeats_kv: bool
    fused_casts: bool
    all_logits: bool
    windows: bool
    routing: Literal["fused", "eager"]
    experts: Literal["grouped", "loop", "loop-all"]
    expert_tile: Annotated[float, msgspec.Meta(ge=0, le=1024)]
    adapter_us: Duration
    reserved_below: Annotated[float, msgspec.Meta(ge=0, le=1024)]
    reserved_on: tuple[str, ...]
    ungated_on: tuple[str, ...]
    tuned_by: str
    tuned_on: tuple[str, ...]
    tuned_formats: tuple[str, ...]
    sparse_on: dict[SparseKind, tuple[str, ...]]
    sparse_heads: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1024)]]
    block_rates: dict[SparseKind, dict[str, tuple[Share, Share]]]
    sparse_else: dict[SparseKind, Literal["masks", "dense", "refuses"]]
    fused_scans: dict[str, tuple[str, ...]]
    expert_spread: Annotated[float, msgspec.Meta(ge=0, le=4)]
    vector_bytes: Annotated[float, msgspec.Meta(ge=0, le=1024)]
    packed_flops: Annotated[float, msgspec.Meta(ge=0, le=1e5)]

    def picks(self, kind: SparseKind, generation: str) -> bool:
        """Whether it has kernels of a kind of sparse attention on a generation of accelerators."""
        return generation in self.sparse_on[kind]


class NarrowKernel(_Part, frozen=True):
    """How weights of one format are multiplied in 16 bit.

    traffic_bytes : read and written per weight beside the packed weight, where it is widened in memory first
    launches : kernels a product needs beside its own
    bandwidth_share, compute_share : of the 16-bit kernel's bandwidth and FLOP rate that the packed one reaches; where
    weights are widened in memory first, products have all of the rate
    widened_rows : rows from which the weights are widened in memory first; fewer run fused
    floor_us : what starting one product costs, where the kernel is no library's; None: as those of the library
    """

    traffic_bytes: Annotated[float, msgspec.Meta(ge=0, le=64)] = 0.0
    launches: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 0.0
    bandwidth_share: Share = 1.0
    compute_share: Share = 1.0
    widened_rows: Count = 1
    floor_us: Duration | None = None

    @property
    def fused_rows(self) -> float:
        """Rows below which the packed kernel runs beside another way for more of them; 0: it is the only one."""
        return float(self.widened_rows) if self.traffic_bytes else 0.0


class Fp4Kernels(_Part, frozen=True):
    """What an engine does with weights in one format of 4-bit floats, by generation of accelerators.

    native : generation -> format of the activations that tensor cores multiply them with; None: not there
    weight_only : generations on which kernels widen them to 16 bit; on others the engine refuses them
    cache : generations on which keys and values may be kept in the format
    """

    native: dict[str, str | None] = {}
    weight_only: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()

    @property
    def generations(self) -> tuple[str, ...]:
        """All that run such weights."""
        return (*(name for name, with_ in self.native.items() if with_), *self.weight_only)


class EngineHost(_Part, frozen=True):
    """Time of the host that the accelerator waits for.

    graphs : the most sequences of a decode step that is replayed as one CUDA graph, with fewer than 4 tensor ranks and
    with more; one number for both, none: no step is replayed
    piece_tokens : steps with prompts of at most so many tokens are replayed in pieces, between attention and scans
    launch_us : to start one kernel where no graph does
    python_us : the same of attention, scans and experts, which compiled code leaves to Python; None: as launch_us
    scan_us : of the kernels of one scan, with the convolution before it and what it is told of sequences; None: each
    kernel as those of attention
    step_ms : scheduling, preparing and reading back one step; parallel_step_ms : more of it with several ranks
    sequence_us : of that for every running sequence; request_ms : to take in a request
    draft_us : to prepare a pass of a drafter, 0: a graph has them all; verify_us : to check the proposals of a step
    """

    launch_us: Duration
    python_us: Duration | None
    scan_us: Duration | None
    graphs: tuple[Count, ...]
    piece_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)]
    step_ms: Duration
    parallel_step_ms: Duration
    sequence_us: Duration
    request_ms: Duration
    draft_us: Duration
    verify_us: Duration


class EngineFactors(_Part, frozen=True):
    """Factors on the accelerator's laws; 1 means as measured.

    untuned : on grouped products for whose shape the engine ships no tuned table
    skinny : on the FLOP rate of products of few rows, decode steps and short prompts, besides `matmul`
    """

    matmul: Factor
    experts: Factor
    untuned: Factor
    skinny: Factor
    attention: Factor
    decode: Factor
    memory_bound: Factor
    collectives: Factor
    streaming: Factor


class EngineExchanges(_Part, frozen=True):
    """How an engine's ranks exchange.

    `all_reduce` custom: a kernel of the engine's own on linked GPUs, which starts in `floor_us`; graphed: NCCL's kernel
    in a CUDA graph, which starts so too; nccl: as the library's own benchmark.
    `dispatchers` send tokens to experts, `dispatcher` where nobody names one, `wide_dispatcher` where NVLink joins
    several hosts and more accelerators than a token has experts; `by_phase` where one instance sends
    prompts and decodes by different kernels, else those of one kind alone do.
    `halves_from`: tokens of a rank from which a decode step, and one with prompts, is computed in halves that hide each
    other's exchanges, where that is asked for; none: never.
    `redundant_experts`: it places experts by their load, with copies of busy ones.
    `experts_apart`: GPUs of a replica may hold experts alone, while the others attend.
    `rows_of_a_rank`: tokens of a rank for which dispatchers that keep rows free have some with each expert.
    """

    all_reduce: Literal["custom", "graphed", "nccl"]
    floor_us: Duration
    dispatcher: str
    wide_dispatcher: str | None
    dispatchers: tuple[str, ...]
    by_phase: bool
    halves_from: tuple[Count, ...]
    redundant_experts: bool
    experts_apart: bool
    rows_of_a_rank: Count


class EngineMemory(_Part, frozen=True):
    """Memory beside weights and cache [GiB], and how the cache is kept.

    pool : preallocated, to `utilization` of the card, or grows with the sequences; context: allocated for the
    context that the engine is started with, which is taken to be as long as the sequences need where nobody gives one
    utilization_of : what the share is of; total: weights, a step's tensors and the cache come to it; free: of what all
    of these leave, the cache; static: weights and cache come to it, tensors of a step have the rest
    block_tokens : the cache is given out in blocks of so many tokens
    states_in_blocks : a recurrent state takes a block of the cache, which is made large enough for it
    float32_states : kinds of recurrence whose states it keeps in float32 where neither the model nor the user says;
    those of others have the model's type
    configured_states : kinds whose states it keeps in what the model's configuration asks for
    set_states : kinds whose states an option of it sets the type of
    state_share : of the pool that recurrent states have for themselves; 0: they share it with keys and values
    fp8_cache_with : formats of weights whose published checkpoints ask for a cache in fp8
    cache_copies : how often the cache of a growing pool is held while a step makes it longer
    length_flag : option that bounds the longest sequence, of an engine that does not start where its cache is too small
    for one; empty: it starts, and cuts or refuses what is too long
    beyond_positions : an engine that is told of longer sequences than the model has positions refuses, or starts
    adapters : LoRA adapters are allocated on all linear layers, on their targets, or there are none
    host_cache : the cache in host memory has copies of what is on the GPU, or what that evicted; or there is none
    cpu_layers : whole layers may be computed on the CPU, and kept in its memory
    embedding : the table of a model whose head has its own is kept on the GPU, or in host memory and read there
    ngram_tables : those that layers look n-grams up in are kept on the GPU, or in host memory and read there
    adapter_ranks : ranks that they are allocated with, the next one up, ascending; empty: their own
    """

    pool: Literal["preallocated", "grows", "context"]
    utilization: Share
    utilization_of: Literal["total", "free", "static"]
    block_tokens: Count
    states_in_blocks: bool
    float32_states: tuple[str, ...]
    configured_states: tuple[str, ...]
    set_states: tuple[str, ...]
    state_share: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    cache_copies: Annotated[float, msgspec.Meta(ge=1, le=4)]
    fp8_cache_with: tuple[str, ...]
    length_flag: str
    beyond_positions: Literal["refuses", "starts"]
    adapters: Literal["all", "targets", "none"]
    adapter_ranks: tuple[int, ...]
    host_cache: Literal["copies", "evicted", "none"]
    cpu_layers: bool
    embedding: Literal["gpu", "host"]
    ngram_tables: Literal["gpu", "host"]
    context_gib: Gib
    communicator_gib: Gib
    workspace_gib: Gib
    graphs_gib: Gib

    def state_dtype(self, space: StateSpace, wide: str, asked: str | None = None) -> str:
        """Type of the recurrent states of a mixer.

        wide : that of the model; asked : that the user set; None: nobody did
        """
        told = asked or (space.state_dtype if space.kind in self.configured_states else None)
        return told or (WIDE_STATES if space.kind in self.float32_states else wide)

    @property
    def grows(self) -> bool:
        """Whether the cache is as large as the sequences need; else it is a pool."""
        return self.pool != "preallocated"


class EngineBatching(_Part, frozen=True):
    """How requests become steps.

    continuous : a request joins and leaves at any step; static: a batch runs to its end
    chunked_prefill : prompts are cut where a step has no room for the whole
    mixed_steps : prompts share a step with decodes; else they stop them
    overlaps : the next step is made up while one runs, so that requests that come then wait for one more
    overlaps_beside_trainers : it is where a trainer drives the engine too
    steps_of_a_prompt : launch scripts of its benchmarks size a step to one prompt and a token of each sequence
    scheduler_recv_interval : decode steps between two looks at the requests that have arrived
    batch_wait_iters : decode steps that prompts wait for more of them to fill a step
    first_token : comes out of the prefill, or of a decode step behind it
    reserves : cache for the whole answer when a request starts, or only what is used
    disaggregates : replicas that only read prompts hand their cache over to others that only decode
    drafts : methods of speculative decoding that it has (`software.speculation`)
    pads : texts without output that share a step are padded to the longest of them
    answers : it writes tokens; else it embeds and scores texts, and does nothing else
    """

    batching: Literal["continuous", "static"]
    chunked_prefill: bool
    mixed_steps: bool
    overlaps: bool
    overlaps_beside_trainers: bool
    steps_of_a_prompt: bool
    scheduler_recv_interval: Count
    batch_wait_iters: Annotated[int, msgspec.Meta(ge=0, le=10**6)]
    max_sequences: Count
    max_step_tokens: Count
    first_token: Literal["prefill", "decode"]
    reserves: Literal["whole", "used"]
    disaggregates: bool
    drafts: tuple[str, ...]
    pads: bool
    answers: bool


class EngineOnCard(_Part, frozen=True):
    """What an engine chooses for cards of less than `below_gib` of memory, or of one of the `generations`."""

    below_gib: Gib = 0.0
    generations: tuple[str, ...] = ()
    max_step_tokens: Count | None = None
    max_sequences: Count | None = None
    utilization: Share | None = None
    graphs: tuple[Count, ...] | None = None
    skinny: Factor | None = None


class EngineInContext(_Part, frozen=True):
    """What an engine that takes prompts whole chooses by the longest sequence that it is to serve.

    Its steps take the longest one, and no less than its `max_step_tokens`; for longer sequences than `pieces_above` it
    cuts prompts into pieces of `piece_tokens` instead, so that prefill and decode share a step.
    """

    pieces_above: Count
    piece_tokens: Count


MANY_EXPERTS = 32
"""Experts of a model above which engines took kernels of their own for narrow ones; vLLM 0.7.3 gptq_marlin.py [-]."""


class Engine(_Part, frozen=True):
    """One engine, complete.

    narrow, many_experts : kernels of formats; the latter of experts in models with more than `MANY_EXPERTS`, where they
    are others
    fp4 : kernels of 4-bit floats, format -> what it does with them; a format that is not there it refuses
    measured_as : the release of it that most published measurements were made with
    default : stands for all where none is named
    aliases : other names of it, and tools that run on it
    vendors : of the accelerators that it runs on; empty: those of any
    families : of number formats whose checkpoints it is made for: it is the default for these
    default_on : generations of accelerators on which it is the default, whatever the format
    offers : formats of weights that people choose of, the widest first
    stores : what it keeps weights in where a width alone is asked for, format -> format of its own
    releases : what older ones did otherwise; release : that was asked for; None: the newest
    by_card : what it chooses by the card, the smallest first; others get what the other parts say
    by_context : what it chooses by the longest sequence; None: nothing
    ports : engines that take its place on accelerators of other vendors, in the same release
    """

    name: str
    describes: str
    source: str
    kernels: EngineKernels
    host: EngineHost
    efficiency: EngineFactors
    exchanges: EngineExchanges
    memory: EngineMemory
    batching: EngineBatching
    narrow: dict[str, NarrowKernel]
    many_experts: dict[str, NarrowKernel]
    fp4: dict[str, Fp4Kernels | None]
    pipelined: bool
    uncertainty: Annotated[float, msgspec.Meta(gt=0, le=10)]
    parent: str | None = None
    default: bool = False
    aliases: tuple[str, ...] = ()
    measured_as: str | None = None
    vendors: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    default_on: tuple[str, ...] = ()
    stores: dict[str, str] = {}
    releases: tuple[Release, ...] = ()
    release: str | None = None
    by_card: tuple[EngineOnCard, ...] = ()
    by_context: EngineInContext | None = None
    ports: dict[str, str] = {}

    @property
    def parent_name(self) -> str:
        """The name of its parent without a release, empty where it has none."""
        return split_release(self.parent)[0] if self.parent else ""

    def on_card(self, memory_bytes: float, generation: str) -> Self:
        """The engine with what it chooses for a card of that memory [bytes] and generation."""
        fitting = (one for one in self.by_card if memory_bytes < one.below_gib * GIB or generation in one.generations)
        found = next(fitting, None)
        if found is None:
            return self
        share = found.utilization or self.memory.utilization
        tokens = found.max_step_tokens or self.batching.max_step_tokens
        sequences = found.max_sequences or self.batching.max_sequences
        memory = msgspec.structs.replace(self.memory, utilization=share)
        batching = msgspec.structs.replace(self.batching, max_step_tokens=tokens, max_sequences=sequences)
        graphs = self.host.graphs if found.graphs is None or not self.host.graphs else found.graphs
        host = msgspec.structs.replace(self.host, graphs=graphs)
        efficiency = msgspec.structs.replace(self.efficiency, skinny=found.skinny or self.efficiency.skinny)
        return msgspec.structs.replace(self, memory=memory, batching=batching, host=host, efficiency=efficiency)

    def in_context(self, longest: float) -> Self:
        """The engine with what it chooses for sequences of at most so many tokens."""
        if self.by_context is None:
            return self
        if longest > self.by_context.pieces_above:
            tokens, pieces = self.by_context.piece_tokens, True
        else:
            tokens, pieces = max(self.batching.max_step_tokens, math.ceil(longest)), False
        mixing = {"chunked_prefill": pieces, "mixed_steps": pieces, "max_step_tokens": tokens}
        batching = msgspec.structs.replace(self.batching, **mixing)
        return msgspec.structs.replace(self, batching=batching)

    @property
    def launch_s(self) -> float:
        return self.host.launch_us * MICRO

    @property
    def python_s(self) -> float:
        return self.launch_s if self.host.python_us is None else self.host.python_us * MICRO

    @property
    def step_s(self) -> float:
        return self.host.step_ms * MILLI

    @property
    def parallel_step_s(self) -> float:
        return self.host.parallel_step_ms * MILLI

    @property
    def sequence_s(self) -> float:
        return self.host.sequence_us * MICRO

    @property
    def request_s(self) -> float:
        return self.host.request_ms * MILLI

    def multiplied_with(self, stored: Format, generation: str) -> str | None:
        """Name of the format of activations that 4-bit floats are multiplied with there; None: they are widened."""
        kernels = self.fp4_kernels(stored)
        return kernels.native.get(generation) if kernels else None

    def fp4_kernels(self, stored: Format) -> Fp4Kernels | None:
        """What it does with such 4-bit floats, whichever layers a checkpoint keeps in them; None: it refuses them."""
        same = (name for name in self.fp4 if FORMATS[name].element == stored.element)
        return next((self.fp4[name] for name in same), None)

    def narrow_kernel(self, stored: Format, experts: int = 0) -> NarrowKernel:
        """How a narrow format is multiplied in 16 bit; fused at full rate where the engine says nothing.

        experts : of the model, for products of experts
        """
        if experts > MANY_EXPERTS and stored.name in self.many_experts:
            return self.many_experts[stored.name]
        return self.narrow.get(stored.name) or self.narrow.get(stored.family, NarrowKernel())
