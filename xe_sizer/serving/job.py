"""A model on an engine and its hardware, with everything resolved but the placement and the load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.inputs import LowRank
from xe_sizer.graph.model import OVER_VOCABULARY
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.vision import VISION
from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import AttentionLaw, DecodeLaw
from xe_sizer.laws.collectives import ALL_REDUCE
from xe_sizer.laws.device import FP8, device
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.laws.network import network
from xe_sizer.software.dispatchers import DISPATCHERS, TO_EXPERTS
from xe_sizer.software.engine import NarrowKernel
from xe_sizer.software.speculation import extended, kept_tokens
from xe_sizer.software.tuned_experts import is_tuned
from xe_sizer.units import MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array, IntArray
    from xe_sizer.graph.vision import Seen
    from xe_sizer.laws.collectives import Network
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.software.dispatchers import Dispatcher
    from xe_sizer.software.engine import Engine
    from xe_sizer.software.number_formats import Scheme
    from xe_sizer.software.speculation import Acceptance

# Requests.

DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS = 1024.0, 256.0
DEFAULT_TURN_TOKENS = 256.0  # that a user or a tool adds, assumed: as many as an answer
HIGHEST_LOAD = 0.999  # share of the top rate up to which waits are computed; at the top they have no end
FULL = 0.98  # share of its top rate at which a replica is run where nobody states a load
TARGET_LOAD = 0.85  # the same where requests come by chance and the user does not say how long they may take


def even_spread(mean: float, longest: float) -> float:
    """Standard deviation over mean of lengths drawn evenly up to a longest one [-].

        spread = (longest - mean) / (sqrt(3) mean)      evenly from 2 mean - longest to longest

    Parameters
    ----------
    mean, longest : of the lengths [tokens]

    Returns
    -------
    float, 1 / sqrt(3) for a draw from 0 on [-]

    Source: variance of a uniform distribution, (longest - shortest)^2 / 12.
    """
    return (longest - mean) / (math.sqrt(3.0) * mean)


class Traffic(Immutable, eq=True):
    """What requests look like: means, and how they spread around them (log-normal).

    inputs, outputs : tokens of a prompt and of an answer
    input_spread, output_spread : standard deviation over mean; 0: all alike
    prefix_hit_share : share of prompt tokens whose keys and values are cached already
    draft_tokens, acceptance_rate, draft_cost : speculative decoding proposes tokens, each kept with this probability
    if those before it were, one for all or one for each position; a proposal takes this share of a step, beside what
    the drafter of the job takes
    draft_depth : positions, where several tokens are proposed for each; None: one
    longest_input, longest_output : no prompt and no answer of a test is longer [tokens]
    documents : texts of a request, each of `inputs` tokens; more than one only where there are no outputs [-]
    """

    inputs: float
    outputs: float
    input_spread: float = 0.0
    output_spread: float = 0.0
    prefix_hit_share: float = 0.0
    draft_tokens: int = 0
    acceptance_rate: float | Acceptance = 0.0
    draft_cost: float = 0.0
    draft_depth: int | None = None
    longest_input: float = math.inf
    longest_output: float = math.inf
    documents: float = 1.0

    @property
    def request_inputs(self) -> float:
        """Tokens of all texts of a request [tokens]."""
        return self.inputs * self.documents

    @property
    def acceptance(self) -> Acceptance:
        """Probability that the proposal at each position is kept if those before it were [-]."""
        rate = self.acceptance_rate
        stated = (rate,) if isinstance(rate, float | int) else rate
        return extended(stated, self.draft_depth or self.draft_tokens)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a step [-]."""
        return kept_tokens(self.acceptance)

    @property
    def outputs_in_time(self) -> float:
        """Mean length of the answers in progress at a moment, in which long ones weigh more [tokens]."""
        return self.outputs * (1.0 + self.output_spread**2)

    @property
    def new_inputs(self) -> float:
        """Prompt tokens that a prefill has to process."""
        return max(self.inputs * (1.0 - self.prefix_hit_share), 1.0)

    def inputs_at(self, deviations: float) -> float:
        """Length of the prompts at `deviations` from their median [tokens]."""
        return min(_log_normal_at(self.inputs, self.input_spread, deviations), self.longest_input)

    def longest_of(self, texts: ArrayLike) -> Array:
        """Length of the longest of so many prompts, in the mean [tokens].

        length at the normal score of (n - 0.375) / (n + 0.25), n >= 1; the mean where all are alike

        Source: Blom's approximation of the mean of the largest of n normal values (G. Blom, 1958).
        """
        many = np.maximum(as_array(texts), 1.0)
        scores = [NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1.0 else 0.0 for n in many.reshape(-1)]
        found = [max(self.inputs_at(score), self.inputs) for score in scores]
        return np.asarray(found).reshape(many.shape)

    def outputs_at(self, deviations: float) -> float:
        """Length of the answers at `deviations` from their median [tokens]."""
        return min(_log_normal_at(self.outputs, self.output_spread, deviations), self.longest_output)


def _log_normal_at(mean: float, spread: float, deviations: float) -> float:
    """Quantile of a log-normal with this mean and spread, at `deviations` from its median."""
    sigma = float(np.sqrt(np.log1p(spread**2)))
    return float(mean * np.exp(sigma * deviations - sigma**2 / 2.0))


# LoRA adapters that one service holds.


class ServedAdapters(Immutable):
    """The adapters of a service.

    count : that requests ask for, each as often; held : of them on the GPU at once, which is the most in a step
    ranks : of a held adapter by projection, as the engine allocates it [-]; forms : low-rank adapters of these
    element_bytes : of A and B [bytes]
    kernel_launches : time of a kernel that finds the rows of an adapter, in launches of the smallest kernel [-]
    """

    count: int
    held: int
    ranks: Mapping[str, int]
    element_bytes: float
    kernel_launches: float = 1.0

    @cached_property
    def forms(self) -> dict[str, LowRank]:
        return {name: LowRank(rank) for name, rank in self.ranks.items()}


# Placements: how the GPUs of one replica share a model, as arrays.


class ReplicaLayouts(Immutable):
    """Sizes of the parallel groups of one replica, arrays of one shape (placements,).

    tp : tensor parallel ranks; pp : pipeline stages; ep : expert parallel ranks
    dp : groups that each compute attention for a share of the sequences, and the experts together
    expert_gpus : that hold experts alone, beside those of attention: the `ep` ranks; 0: all do both. Placements of one
    array all have some, or none
    """

    tp: IntArray
    pp: IntArray
    ep: IntArray
    dp: IntArray
    expert_gpus: IntArray

    @classmethod
    def of(
        cls, tp: ArrayLike = 1, pp: ArrayLike = 1, ep: ArrayLike = 1, dp: ArrayLike = 1, expert_gpus: ArrayLike = 0
    ) -> ReplicaLayouts:
        given = (tp, pp, ep, dp, expert_gpus)
        return cls(*np.broadcast_arrays(*(np.atleast_1d(np.asarray(size, dtype=np.int64)) for size in given)))

    def __len__(self) -> int:
        return len(self.tp)

    def __getitem__(self, index: NDArray[np.bool_] | IntArray | slice) -> ReplicaLayouts:
        return ReplicaLayouts(**{field: getattr(self, field)[index] for field in self.__struct_fields__})

    @property
    def gpus(self) -> IntArray:
        """GPUs of a replica."""
        return np.asarray(self.attention_gpus + self.expert_gpus)

    @property
    def attention_gpus(self) -> IntArray:
        """GPUs that attend; they hold the experts too where no others do."""
        return np.asarray(self.tp * self.pp * self.dp)

    @property
    def apart(self) -> bool:
        """Whether experts have GPUs of their own."""
        return bool(np.any(self.expert_gpus > 0))

    @property
    def expert_tp(self) -> IntArray:
        """Ranks that share one expert: what expert parallelism leaves of a stage's ranks; 1 on GPUs of experts."""
        return np.asarray(np.where(self.expert_gpus > 0, 1, np.maximum(self.tp * self.dp // self.ep, 1)))


# The job.

WIDE_MODULES = frozenset({"head", "router", "embedding", "norm", VISION})
MIXERS = frozenset({"qkv", "output_projection", "attention", "state_space"})


class Images(Immutable, eq=True):
    """Images of every request.

    each : of a request [-]; seen : what becomes of one; prompt_tokens : of a request, with those of its images
    """

    each: int
    seen: Seen
    prompt_tokens: float


class CpuLayers(Immutable):
    """Layers that the CPU computes, with the head: the host as a device.

    layers : of the model [-]; copy_bytes_per_s : at which their weights go to the accelerator, for prompts [bytes/s]
    """

    layers: int
    device: Device
    copy_bytes_per_s: float


class Allocated(Immutable):
    """Cache that an engine allocates as it starts: of so many `sequences` of `tokens` each."""

    sequences: float
    tokens: float


class Drafter(Immutable):
    """What proposes the tokens of speculative decoding, on the ranks of the model.

    method : of `software.speculation`
    first : over the tokens that were verified and over prompts; further : for each further position
    passes : of it in a step, one for each position; 0: its time is stated as a share of a step
    width : tokens of a sequence in each further pass [-]
    modules : of its weights and cache, which passes take in turn [-]
    own_embedding, own_head : whether it has these beside those of the model; an embedding of the model is also loaded
    again where the last pipeline stage is not the first
    embeds : whether it reads tokens; else states of the model alone
    context : what verified tokens and prompts pass before one pass over a block of masks drafts all positions; None:
    drafts follow each other
    tp : ranks of its own tensor parallelism, no more than the model's; None: the model's
    """

    method: str
    first: ServingJob
    further: ServingJob
    passes: int
    width: float = 1.0
    modules: int = 1
    own_embedding: bool = False
    own_head: bool = False
    embeds: bool = True
    context: ServingJob | None = None
    tp: int | None = None

    def placements(self, of_model: ReplicaLayouts) -> ReplicaLayouts:
        """The ranks that draft: those of the last stage of the model, or fewer."""
        tp = of_model.tp if self.tp is None else np.minimum(of_model.tp, self.tp)
        return replace(of_model, pp=np.ones_like(of_model.pp), tp=np.asarray(tp))


class ServingJob(Immutable):
    """What serves: `device` is one accelerator, `network` what joins them.

    cpu : layers that the CPU computes; None: none
    allocated : the cache that it was started with; None: a pool of its own, or one that grows
    images : of every request; None: none, though the encoder of a model that sees is loaded
    adapters : beside the weights; None: none
    fetch_s : that the mean request waits for its cache from host memory [s]
    encode_s : that it waits for its images from GPUs that encode them apart [s]
    drafter : of speculative decoding; None: nothing that takes time or memory
    dispatcher : of tokens to experts; expert_skew, redundant_experts : as in `graph.operators.Kernels` [-]
    halves : steps are computed in two halves that hide each other's exchanges
    expert_gpus : of a replica that hold experts alone; 0: none do, None: as many as are best
    micro_batches : of a step, between GPUs of attention and of experts; None: as many as are best
    """

    model: ModelShape
    engine: Engine
    scheme: Scheme
    server: Server
    device: Device
    network: Network
    efficiency: Efficiency
    dispatcher: Dispatcher
    expert_skew: float | None = None
    redundant_experts: int | None = None
    halves: bool = False
    expert_gpus: int | None = 0
    micro_batches: int | None = None
    images: Images | None = None
    adapters: ServedAdapters | None = None
    fetch_s: float = 0.0
    encode_s: float = 0.0
    cpu: CpuLayers | None = None
    allocated: Allocated | None = None
    drafter: Drafter | None = None

    @property
    def answers(self) -> bool:
        """Whether the model writes tokens; else it returns states or scores, and keeps no cache."""
        return self.model.head in OVER_VOCABULARY

    @property
    def grows(self) -> bool:
        """Whether the cache is as large as the sequences need, or there is none; else it is allocated at the start."""
        return (self.engine.memory.grows and self.allocated is None) or not self.answers

    @property
    def gpu_share(self) -> float:
        """Of the layers, those that accelerators hold and compute [-]."""
        return 1.0 - (self.cpu.layers / self.model.layers if self.cpu else 0.0)

    def sends_by(self, placements: ReplicaLayouts) -> Dispatcher:
        """How tokens get to experts: by what the engine has, or to GPUs that hold experts alone."""
        return TO_EXPERTS if placements.apart else self.dispatcher

    def groups(self, placements: ReplicaLayouts) -> Array:
        """Groups that the sequences of a replica are in: attention ranks, and stages that work at the same time [-]."""
        return as_array(placements.dp * (placements.pp if self.engine.pipelined else 1))

    @property
    def cached_element_bytes(self) -> float:
        """Size that reading an element of the cache counts with [bytes].

        Accelerators without products in the cache's format convert it in each step, which takes what reading it saves:
        16 bit then, unless it is known how fast the engine's kernels do so.

        Source: vLLM 0.11 documentation, quantized KV cache: no lower latency without hardware that converts.
        """
        cache = self.scheme.cache
        gpu = self.server.accelerator
        known = widened_elements_per_s(self.engine, self.scheme, gpu) is not None
        converts = cache.peak == FP8 and FP8 not in gpu.peak_flops_per_s and not known
        return max(cache.element_bytes, SIXTEEN_BIT) if converts else cache.element_bytes

    @property
    def element_bytes(self) -> float:
        """Size of an activation element between the products."""
        return self.device.element_bytes

    @property
    def request_s(self) -> float:
        """Time that the host takes to take in a request; fixed efficiencies time the accelerator alone [s].

        With what the request waits for its cache, and for its images.
        """
        return self.fetch_s + self.encode_s + (0.0 if self.efficiency.fixed else self.engine.request_s)


def widened_elements_per_s(engine: Engine, scheme: Scheme, gpu: Accelerator) -> float | None:
    """Elements of the cache that decode kernels widen at most; None: as fast as they read them [1/s].

        rate = fp8_widened clocks      a cache of 8-bit floats

    Source: CUDA's __nv_cvt_fp8_to_halfraw (cuda_fp8.hpp): one instruction since Ada (__CUDA_ARCH__ >= 890), before it
    masks, shifts and branches on each element.
    """
    in_a_clock = engine.kernels.fp8_widened.get(gpu.generation) if scheme.cache.peak == FP8 else None
    return in_a_clock * gpu.clocks_per_s if in_a_clock and gpu.clocks_per_s else None


def reserves(engine: Engine, scheme: Scheme, gpu: Accelerator) -> bool:
    """Whether the engine has grouped products that run over reserved rows on the accelerator, in the scheme."""
    kernels = engine.kernels
    return bool(kernels.reserved_below) and scheme.activations.blocked and gpu.generation in kernels.reserved_on


def in_triton(job: ServingJob) -> bool:
    """Whether grouped products of experts run in Triton's kernels, but for those over reserved rows."""
    kernels, there = job.engine.kernels, job.server.accelerator.generation
    return there in kernels.tuned_on and job.scheme.weights.name in kernels.tuned_formats


def untuned(job: ServingJob, placements: ReplicaLayouts) -> NDArray[np.bool_]:
    """Whether the grouped products of each placement run in Triton kernels that have no table of tuned block sizes.

        shape = experts / ep x width / (tp dp / ep)

    Those over reserved rows are others, which need none, as are those of tokens that a dispatcher sent.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)

    Returns
    -------
    ndarray of bool, shape (placements,) [-]

    Source: get_config_file_name and try_get_optimal_moe_config in vLLM's and SGLang's fused_moe.
    """
    experts, kernels, form = job.model.experts, job.engine.kernels, job.scheme.weights.name
    gpu = job.server.accelerator
    to_all = job.sends_by(placements).prompts.dispatch == "to-all"
    sent = (placements.ep > 1) & (not to_all) & job.scheme.activations.blocked
    if experts is None or not in_triton(job):
        return np.zeros(len(placements), dtype=bool)
    shapes = zip(
        (experts.count + (job.redundant_experts or 0)) // placements.ep,
        experts.ffn // placements.expert_tp,
        strict=True,
    )
    tuned = (is_tuned(kernels.tuned_by, job.engine.release, gpu.name, form, int(e), int(n)) for e, n in shapes)
    reserved = reserves(job.engine, job.scheme, gpu) & (placements.expert_tp < kernels.reserved_below)
    return np.asarray(~(np.fromiter(tuned, dtype=bool, count=len(placements)) | reserved | sent))


def wide_modules(scheme: Scheme) -> frozenset[str]:
    """Modules whose weights stay in 16 bit: head, router and embedding; in expert-only formats all but the experts.

    Formats that are stored everywhere leave the router alone; NVFP4 leaves the attention of mixtures in 16 bit too.
    """
    if scheme.weights.element_bytes >= SIXTEEN_BIT:
        return frozenset()
    if scheme.weights.everywhere:
        return frozenset({"router"})
    if scheme.weights.experts_only:
        return WIDE_MODULES | MIXERS | {"mlp"}
    return WIDE_MODULES | MIXERS if scheme.weights.spares_attention and scheme.mixture else WIDE_MODULES


# The device, as an engine drives it.

# A kernel that reads 16-bit activations and writes 8-bit ones; its time is assumed.
OWN_CAST_S, OWN_CAST_BYTES = 3e-6, 3.0
# 21,296 products in fp8 with scales of blocks, timed by aiconfigurator (TensorRT-LLM 1.3, H100), fit at 1.01.
BLOCKED_SHARPNESS = 1.01
# Published runs of mixtures: 342 figures, median ratio 0.96 with 1.5 where the 1.1 of unpadded rows leaves 0.93.
TILED_SHARPNESS = 1.5
# DeepGEMM's persistent grouped products over rows in order of experts: 1,093 to 1,297 TFLOP/s on H800 (its README of
# February 2025), 0.60 of the peak where the law of grouped products has 0.49. They load ahead of what they compute: the
# knee is fitted to 51 runs of Qwen3-235B with vLLM 0.12 on H200.
PERSISTENT_GAIN, PERSISTENT_SHARPNESS = 1.24, 2.0
SKINNY_ROWS = 512.0  # chosen: above the decode steps that were measured, below the prompts


def serving_job(
    model: ModelShape, engine: Engine, scheme: Scheme, server: Server, efficiency: Efficiency
) -> ServingJob:
    """Joins model, engine and hardware."""
    return ServingJob(
        model=model,
        engine=engine,
        scheme=scheme,
        server=server,
        device=_device(model, server.accelerator, engine, scheme, efficiency),
        network=_network(server, engine),
        efficiency=efficiency,
        dispatcher=DISPATCHERS[engine.exchanges.dispatcher],
    )


def _device(model: ModelShape, gpu: Accelerator, engine: Engine, scheme: Scheme, chosen: Efficiency) -> Device:
    """The accelerator with the scheme's formats; narrow weights stream at the share that the engine's kernels reach."""
    made = device(gpu, scheme.compute, engine.kernels.attention_family, engine.efficiency, chosen, False)
    if not chosen.fixed:
        scan = made.scan_matmul
        wide = replace(scan, memory_efficiency=scan.memory_efficiency * engine.efficiency.streaming)
        # Products of narrow operands both follow the fitted law.
        narrow = of_experts = NarrowKernel()
        if scheme.widens:
            narrow = engine.narrow_kernel(scheme.weights)
            of_experts = engine.narrow_kernel(scheme.weights, model.experts.count if model.experts else 0)
        plain, experts = (_in_clocks(law, scheme, engine, gpu) for law in (made.matmul, made.expert_matmul))
        grouped = _product_law(_tiled(experts, engine), wide, scheme, engine, of_experts)
        # Tokens are cast before they are copied to the rows that are reserved for them.
        reserved = replace(grouped.scaled(PERSISTENT_GAIN), sharpness=PERSISTENT_SHARPNESS, cast_bytes_per_element=0.0)
        made = replace(
            made,
            matmul=_skinny(_product_law(plain, wide, scheme, engine, narrow), engine),
            expert_matmul=grouped,
            reserved_matmul=reserved if reserves(engine, scheme, gpu) else None,
            scan_matmul=wide,
            decode=_decode_law(made.decode, engine, scheme, gpu),
        )
    return replace(made, weight_element_bytes=scheme.weights.element_bytes, wide_modules=wide_modules(scheme))


# Two modules of DDR5-5600 in two channels, 2 x 8 bytes x 5.6 GHz: assumed of a machine that nobody describes.
HOST_BYTES_PER_S = 89.6e9
# Of the bandwidth, fitted to llama.cpp: 26 of 38 GB/s on an i7-8700 (InventiveHQ, Qwen2.5-Coder 14B), 68 of 102 on an
# i9-13900K (llama.cpp issue 34, 7B), 21 of 34 on a Ryzen 5800X (pull request 12922).
HOST_SHARE = 0.67
# Assumed: eight cores with vectors of 32 bytes at 4 GHz. It binds prompts alone, which accelerators compute.
HOST_FLOPS_PER_S = 1e12
HOST_FLOOR_S = 2e-6  # assumed: threads meet after each operator


def cpu_layers(job: ServingJob, layers: int, host_bytes_per_s: float) -> CpuLayers:
    """The host as a device that computes so many layers: all that it does waits for its memory."""
    law = MatmulLaw(HOST_FLOOR_S, 1.0, HOST_SHARE, 3.0)
    wide = AttentionLaw(HOST_FLOOR_S, 1.0, 0.0, HOST_SHARE, 1.0)
    host = replace(
        job.device,
        matmul=law, expert_matmul=law, reserved_matmul=None, scan_matmul=law, adapter_matmul=law,
        attention=wide, masked_attention=wide, eager_attention=None,
        peak_flops_per_s=HOST_FLOPS_PER_S, attention_peak_flops_per_s=HOST_FLOPS_PER_S,
        narrow_attention_peak_flops_per_s=HOST_FLOPS_PER_S,
        adapter_peak_flops_per_s=HOST_FLOPS_PER_S,
        bandwidth_bytes_per_s=host_bytes_per_s, memory_bound_efficiency=HOST_SHARE, memory_bound_floor_s=HOST_FLOOR_S,
        decode=DecodeLaw(HOST_FLOOR_S, HOST_SHARE),
    )  # fmt: skip
    return CpuLayers(layers, host, 0.88 * job.server.pcie_bytes_per_s)


def _in_clocks(law: MatmulLaw, scheme: Scheme, engine: Engine, gpu: Accelerator) -> MatmulLaw:
    """The law of products in kernels that multiprocessors keep busy with other work than tensor cores and memory.

    e_b <= vector_bytes clocks / (streaming bandwidth)
    e_f  = packed_flops clocks / peak            narrow weights
    """
    kernels, clocks = engine.kernels, gpu.clocks_per_s
    if clocks is None:
        return law
    if kernels.vector_bytes:
        most = kernels.vector_bytes * clocks / (engine.efficiency.streaming * gpu.memory_bandwidth_bytes_per_s)
        law = replace(law, memory_efficiency=min(law.memory_efficiency, most))
    if kernels.packed_flops and scheme.weight_only:
        reached = kernels.packed_flops * clocks / gpu.peak_flops_per_s[scheme.compute]
        law = replace(law, flops_efficiency=reached, sustained_flops_efficiency=None)
    return law


def _decode_law(law: DecodeLaw, engine: Engine, scheme: Scheme, gpu: Accelerator) -> DecodeLaw:
    """The law of attention over the cache, whose elements some kernels widen more slowly than memory brings them.

    e <= elements per second x cache's element / bandwidth
    """
    share, widened = law.memory_efficiency * engine.efficiency.decode, widened_elements_per_s(engine, scheme, gpu)
    if widened is not None:
        share = min(share, widened * scheme.cache.element_bytes / gpu.memory_bandwidth_bytes_per_s)
    return replace(law, memory_efficiency=share)


def _tiled(law: MatmulLaw, engine: Engine) -> MatmulLaw:
    """The law of grouped products whose padded rows are counted: its knee already contained their waste."""
    return replace(law, sharpness=max(law.sharpness, TILED_SHARPNESS)) if engine.kernels.expert_tile else law


def _skinny(law: MatmulLaw, engine: Engine) -> MatmulLaw:
    """The law of single products where those of few rows have no kernels of their own."""
    share = engine.efficiency.skinny
    return replace(law, few_rows=SKINNY_ROWS, few_rows_share=share) if share < 1.0 else law


def _product_law(law: MatmulLaw, wide: MatmulLaw, scheme: Scheme, engine: Engine, narrow: NarrowKernel) -> MatmulLaw:
    """The law of products in the scheme's formats: the floor of plain kernels, and casts where they are not fused.

    The laws of 8 and 4 bit were fitted with the cast as separate kernels in front.
    """
    blocked = scheme.activations.blocked
    own_cast = scheme.activations.element_bytes < SIXTEEN_BIT and (blocked or not engine.kernels.fused_casts)
    floor_s = wide.floor_s if narrow.floor_us is None else narrow.floor_us * MICRO
    fused_rows = narrow.fused_rows
    return replace(
        law if fused_rows else law.scaled(narrow.compute_share),
        few_rows=fused_rows,
        few_rows_share=narrow.compute_share,
        floor_s=floor_s + (OWN_CAST_S if own_cast else 0.0),
        memory_efficiency=law.memory_efficiency * engine.efficiency.streaming * narrow.bandwidth_share,
        cast_bytes_per_element=OWN_CAST_BYTES if own_cast else 0.0,
        sharpness=BLOCKED_SHARPNESS if blocked else law.sharpness,
    )


def _network(server: Server, engine: Engine) -> Network:
    """The node's network; an all-reduce of the engine's own starts sooner than that of the library."""
    joined = network(server)
    law = joined.scale_up[ALL_REDUCE]
    if engine.exchanges.all_reduce == "nccl" or not server.fabric.custom_all_reduce:
        return joined
    floor_s = engine.exchanges.floor_us * MICRO
    law = replace(law, alpha_s=tuple(float(np.minimum(alpha, floor_s)) for alpha in law.alpha_s))
    return replace(joined, scale_up={**joined.scale_up, ALL_REDUCE: law})
