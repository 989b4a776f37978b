"""Seconds of an engine's step: its operators, what the host takes, and the batch that runs in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from xe_sizer.graph.attention import OF_SEQUENCES
from xe_sizer.graph.experts import EXPERTS, busiest_load
from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.operators import (
    Attention,
    Collective,
    Kernels,
    Matmul,
    RankShape,
    Scan,
    as_array,
    launches,
    layers_per_stage,
)
from xe_sizer.graph.transformer import embedding_operators, layer_operators, sampling_operators, sequence_operators
from xe_sizer.graph.vision import VISION, vision_operators
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import POINT_TO_POINT, STOLEN, collective_time_s
from xe_sizer.laws.device import FP8, Efficiency
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import NETWORK as NETWORK_TIME
from xe_sizer.laws.operator_time import (
    OperatorCost,
    operator_sizes,
    operator_times,
    operator_work,
)
from xe_sizer.laws.parts import computed, part
from xe_sizer.serving.job import in_triton, reserves, serving_job, untuned
from xe_sizer.serving.memory import MODULE as ADAPTERS
from xe_sizer.serving.memory import adapter_operators, is_of_experts, rank_weight_bytes
from xe_sizer.units import MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.laws.operator_time import OperatorWork
    from xe_sizer.laws.parts import Part
    from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic

# Inputs of the operators: sizes of the fullest rank, kernels, bytes of an element.

NOTHING_LEARNS = Learning(base=False)


def of_the_fullest(sequences: Array, groups: Array) -> Array:
    """Sequences of the fullest group.

        fullest = max(sequences / groups, min(sequences, 1))

    Parameters
    ----------
    sequences : of all groups [-]
    groups : attention ranks, and stages that work at the same time [-]

    Returns
    -------
    ndarray of float, shape that both broadcast to [-]

    Source: own derivation: a sequence is not cut, so that with fewer of them than groups some groups are idle.
    """
    return np.asarray(np.maximum(sequences / groups, np.minimum(sequences, 1.0)))


def step_inputs(
    job: ServingJob,
    placements: ReplicaLayouts,
    tp: Array,
    batch: Array,
    sequence: ArrayLike,
    past: ArrayLike,
    kernels: Kernels,
) -> GraphInputs:
    """Inputs of the operators of sequences alike, on the fullest rank of each placement.

        tokens of a rank = batch x sequence

    Engines have no context parallelism, and no sequence parallelism of norms.

    Parameters
    ----------
    job, placements : the job, and placements that broadcast with the sizes
    tp : tensor-parallel ranks, of the shape of the points [-]
    batch, sequence, past : sequences of a group, tokens of each that are processed, and tokens before them [-]
    kernels : of the engine

    Returns
    -------
    GraphInputs, shape (points,) [-] and [bytes]

    Source: placement of the engines' ranks; `NarrowKernel` for weights that are widened in memory.
    """
    one = np.ones(tp.shape)
    rank = RankShape(
        batch=batch * one,
        sequence=as_array(sequence) * one,
        tp=tp * one,
        cp=one,
        ep=as_array(placements.ep) * one,
        expert_tp=as_array(placements.expert_tp) * one,
        sequence_parallel=0.0 * one,
        past=as_array(past) * one,
    )
    widened = _widening_bytes(job, rank)
    return GraphInputs(
        model=job.model,
        rank=rank,
        kernels=kernels,
        learning=NOTHING_LEARNS,
        element_bytes=job.element_bytes,
        weight_forward_bytes=widened,
        weight_backward_bytes=0.0 * one,
        residual_element_bytes=job.element_bytes,
        cached_element_bytes=job.cached_element_bytes,
    )


def _widening_bytes(job: ServingJob, rank: RankShape) -> Array:
    """Traffic per weight of formats that are widened in memory before the product; few rows run fused [bytes]."""
    if not job.scheme.weight_only or job.efficiency.fixed:
        return np.zeros(rank.tp.shape)
    narrow = job.engine.narrow_kernel(job.scheme.weights)
    return np.asarray(narrow.traffic_bytes * (rank.tokens >= narrow.widened_rows), dtype=np.float64)


# A step: the tokens of prefills and decodes that it takes together.
#
# Linear layers, norms and exchanges see all tokens of the step at once; attention works on each kind of sequence
# separately. A pure prefill or a pure decode is a step whose other part is empty.

MATMUL = "t0 + (a^p + b^p)^(1/p), a = 2 m n k / (e_f peak), b = bytes of weights and activations / (e_b bandwidth)"
LAWS = "operator laws of the accelerator"
NETWORK = "collective laws of the server, with the engine's own start-up time"
HEAD, PRODUCTS, MIXING, MOVING, ADAPTING = "head", "products", "mixing", "moving", "adapting"
SEEING = "seeing"
OWN_PARTS = {HEAD: HEAD, ADAPTERS: ADAPTING, VISION: SEEING}  # modules whose kernels are a part, whatever they do


class Work(Immutable):
    """What one step of a replica processes; arrays that broadcast with the placements.

    decodes : sequences that get their next `decode_tokens` tokens (1, or more with speculation) on `decode_past`
    prefills : sequences of which `prefill_tokens` are processed on `prefill_past` tokens that are cached already
    decode_logits : tokens of a decode that get logits; None: all
    """

    decodes: ArrayLike = 0.0
    decode_past: ArrayLike = 0.0
    prefills: ArrayLike = 0.0
    prefill_tokens: ArrayLike = 1.0
    prefill_past: ArrayLike = 0.0
    decode_tokens: ArrayLike = 1.0
    decode_logits: float | None = None


Points = Callable[["Array"], "Array"]
"""Picks or averages points of a step: from an array of shape (all points,) to one of shape (points,)."""


class StepTime(Immutable):
    """Seconds of a step by part, arrays of shape (points,); they sum to the step.

    step : what they were computed from, at more points perhaps; points : which of those they are, one after the other
    """

    parts: dict[str, Array]
    step: EngineStep
    points: tuple[Points, ...] = ()

    @property
    def total_s(self) -> Array:
        return np.asarray(sum(self.parts.values()))

    def at(self, points: Points) -> StepTime:
        """The step at some of its points, or in their mean."""
        return StepTime({name: points(value) for name, value in self.parts.items()}, self.step, (*self.points, points))

    @property
    def modules(self) -> dict[str, Array]:
        """Seconds of the kernels by module of the model."""
        return {name: self.picked(value) for name, value in self.step.modules_s.items()}

    def picked(self, value: Array) -> Array:
        """A figure of all points of the step, at those of this time."""
        picked = np.broadcast_to(value, self.step.rank.tp.shape)
        for points in self.points:
            picked = points(picked)
        return picked


class EngineStep(Immutable):
    """What the parts of a step are computed from: the operators of one rank, tokens, sequences, decodes.

    layers, ends : operators of the layers, of one half where there are two, and of embedding, head and the encoder of
    images; rank : of the layers
    sequences : of one group; pure_decode : 1 where no prompt runs, else 0; halves : that a step is computed in, 1 or 2,
    or its micro-batches where experts are apart; all of the shape of `rank`
    experts : what GPUs that hold experts alone do of a micro-batch, beside the `layers` of those of attention; or None
    """

    job: ServingJob
    placements: ReplicaLayouts
    layers: tuple[Operator, ...]
    ends: tuple[Operator, ...]
    rank: RankShape
    sequences: Array
    pure_decode: Array
    halves: Array
    experts: ExpertsApart | None = None

    @property
    def zeros(self) -> Array:
        return np.zeros(self.rank.tp.shape)

    @cached_property
    def imbalance(self) -> Array:
        """How much longer the layers take where stages differ: all groups go at the pace of ceil(layers / pp) [-]."""
        stages = as_array(self.placements.pp if self.job.engine.pipelined else np.ones_like(self.placements.pp))
        return np.asarray(layers_per_stage(self.job.model.layers, stages) * stages / self.job.model.layers)

    @cached_property
    def _untuned(self) -> Array:
        """How much longer grouped products take where no table is tuned for them [-]."""
        slower = 1.0 if self.job.efficiency.fixed else 1.0 / self.job.engine.efficiency.untuned
        return np.where(untuned(self.job, self.placements), slower, 1.0)

    @cached_property
    def offloaded(self) -> Array:
        """1 where layers on the CPU send their weights to the accelerator, which computes them all; else 0."""
        return np.asarray((self.rank.tokens >= OFFLOADED_ROWS).astype(float))

    @cached_property
    def _on_gpu(self) -> Array:
        """Share of the layers that the accelerator computes [-]."""
        return np.asarray(np.where(self.offloaded > 0, 1.0, self.job.gpu_share))

    def longer(self, operator: Operator) -> Array:
        """How much longer an operator of a layer takes than by its law, of all layers and halves [-]."""
        grouped = isinstance(operator, Matmul) and operator.grouped
        return self.halves * self._on_gpu * (self.imbalance * self._untuned if grouped else self.imbalance)

    @cached_property
    def ends_on_gpu(self) -> float:
        """1 where embedding and head are the accelerator's, 0 where the CPU has them with some layers [-]."""
        return 0.0 if self.job.cpu else 1.0

    @cached_property
    def times(self) -> tuple[tuple[Operator, Array], ...]:
        """Operators with the seconds that they take in all layers of the fullest stage."""
        ends = operator_times(self.ends, self.job.device, backward=False)
        return (
            *self._layer_times,
            *((time.operator, self.ends_on_gpu * np.ones(1) * time.forward_s) for time in ends),
        )

    @cached_property
    def _layer_times(self) -> tuple[tuple[Operator, Array], ...]:
        times = operator_times(self.layers, self.job.device, backward=False)
        return tuple((time.operator, self.longer(time.operator) * time.forward_s) for time in times)

    @staticmethod
    def kind(operator: Operator) -> str:
        """What the operator's kernels do: head, products, mixing, moving or adapting; or that they encode images."""
        if operator.module in OWN_PARTS:
            return OWN_PARTS[operator.module]
        if isinstance(operator, Matmul):
            return PRODUCTS
        return MIXING if isinstance(operator, Attention | Scan) else MOVING

    @cached_property
    def kernels_s(self) -> dict[str, Array]:
        """Seconds by what the kernels do, as `kind` tells them apart."""
        return self._summed_by(self.kind)

    @property
    def modules_s(self) -> dict[str, Array]:
        """Seconds by module of the model."""
        return self._summed_by(lambda operator: operator.module)

    def _summed_by(self, key: Callable[[Operator], str]) -> dict[str, Array]:
        sums: dict[str, Array] = {}
        for operator, seconds in self.times:
            name = key(operator)
            sums[name] = sums.get(name, self.zeros) + seconds
        return sums

    @cached_property
    def exchanges_s(self) -> dict[str, tuple[Array, Array]]:
        """Seconds of the exchanges inside the layers by parallel group; nothing where they are hidden."""
        if self.job.efficiency.hides_exchanges:
            return {}
        network, efficiency = self.job.network, self.job.engine.efficiency.collectives
        found = exchange_times((*self.layers, *self.ends), self.rank, network, efficiency, backward=False)
        if not np.any(self.halves > 1.0):
            return found
        again = exchange_times(self.layers, self.rank, network, efficiency, backward=False)
        more = self.halves - 1.0
        return {group: (once + more * again[group][0], backward) for group, (once, backward) in found.items()}

    def exchange_s(self, group: str) -> Array:
        return self.exchanges_s[group][0] if group in self.exchanges_s else self.zeros

    @cached_property
    def busiest_load(self) -> Array:
        """Tokens of the busiest rank of experts over their mean [-]; 1 without experts. See `graph.experts`."""
        job, rank = self.job, self.experts.rank if self.experts else self.rank
        if job.model.experts is None:
            return np.ones(rank.tp.shape)
        copies = rank.tokens * rank.expert_tp / rank.tp * job.model.experts.per_token
        return busiest_load(rank.ep, copies, job.model.experts.count, _expert_kernels(job, self.placements))

    @cached_property
    def waited_share(self) -> Array:
        """Of the exchanges with experts, what is waited for; 1 where nothing hides them [-].

            waited = 1 - hidden + steals hidden,  hidden = min(compute / exchange, 1)      two halves

        One half is computed while tokens of the other are under way, so that the longer of both sets the pace of each
        layer. Kernels that send steal multiprocessors meanwhile, which compute misses for as long.

        Source: DeepSeek's profile-data; SGLang two_batch_overlap.py; `laws.collectives.STOLEN`.
        """
        computing_s = sum((seconds for _, seconds in self._layer_times), self.zeros)
        hidden = np.minimum(computing_s / np.maximum(self.exchange_s("ep"), 1e-12), 1.0)
        by_prompts, by_decodes = (
            STOLEN * kind.steals for kind in (self.job.dispatcher.prompts, self.job.dispatcher.decodes)
        )
        stolen = np.where(self.pure_decode > 0, by_decodes, by_prompts)
        return np.asarray(np.where(self.halves > 1.0, 1.0 - hidden * (1.0 - stolen), 1.0))

    @cached_property
    def pools(self) -> PoolTimes | None:
        """How long the GPUs of attention, those of experts and the links between them work; None without such pools."""
        if self.experts is None:
            return None
        job, model = self.job, self.job.model
        times = operator_times(self.experts.layers, job.device, backward=False)
        experts_s = sum((self.longer(time.operator) * time.forward_s for time in times), self.zeros)
        attending_s = sum((seconds for _, seconds in self._layer_times), self.zeros) + self.exchange_s("tp")
        sent = [op for op in self.experts.layers if isinstance(op, Collective) and _sends(op)]
        there, back = sent[::2], sent[1::2]  # each kind of layers sends its tokens there, then back
        there_s, back_s = (sum((self.sent_s(op) for op in way), self.zeros) for way in (there, back))
        share = sum(op.layers for op in there) / model.layers
        return PoolTimes(attending_s * share, experts_s, there_s, back_s, self.halves)

    def sent_s(self, operator: Collective) -> Array:
        """Seconds of a step that tokens are on their way in one direction; all GPUs send at once, over their links."""
        if self.job.efficiency.hides_exchanges:
            return self.zeros
        placements, network = self.placements, self.job.network
        ((_, busiest),) = operator.forward
        of_attention = busiest / self.busiest_load * placements.expert_gpus / placements.attention_gpus
        near = np.where(placements.gpus <= network.node_ranks, 2.0, 1.0)
        message = np.maximum(busiest, of_attention)
        once = collective_time_s(POINT_TO_POINT, message, 2.0, near, network, start_s=operator.start_s)
        return np.asarray(self.halves * operator.layers * once / self.job.engine.efficiency.collectives)


class ExpertsApart(Immutable):
    """What one GPU that holds experts alone does of a micro-batch: its operators, and the tokens that it gets."""

    layers: tuple[Operator, ...]
    rank: RankShape


class PoolTimes(Immutable):
    """Seconds of a step that each pool works, and the links in each direction, in all layers that have experts [s].

    attention, experts : busiest GPU of each; there, back : tokens on their way; micro_batches : m [-]
    """

    attention: Array
    experts: Array
    there: Array
    back: Array
    micro_batches: Array

    @property
    def total_s(self) -> Array:
        """Seconds of these layers of a step, in which micro-batches go back and forth between the pools.

            t = max(a, f, c, c', (a + f + c + c') / m)

        a, f, c and c' are those of all m micro-batches: whatever is busy longest sets the pace, and no micro-batch is
        faster than its own way through both pools and back.

        Source: MegaScale-Infer (arXiv:2504.02263), section 4.1, ping-pong pipeline; Step-3 (arXiv:2507.19427).
        """
        parts = (self.attention, self.experts, self.there, self.back)
        way_s = sum(parts) / self.micro_batches
        return np.asarray(np.maximum.reduce([*np.broadcast_arrays(*parts, way_s)]))


@part("linear layers", MATMUL, LAWS)
def linear_layers(step: EngineStep) -> Array:
    return step.kernels_s.get(PRODUCTS, step.zeros)


@part(
    "attention",
    "prompts: t0 + F (1 + s0/s) / (e peak) + bytes / bandwidth; decoding: t0 + KV bytes / (e bandwidth)",
    LAWS,
)
def attention(step: EngineStep) -> Array:
    return step.kernels_s.get(MIXING, step.zeros)


@part("memory-bound operators", "floor of a launch + bytes / (efficiency x bandwidth)", LAWS)
def memory_bound_operators(step: EngineStep) -> Array:
    return step.kernels_s.get(MOVING, step.zeros)


@part(
    "LoRA adapters",
    "2 launches a projection + bytes of activations, A and B of every adapter in the step / (efficiency x bandwidth)",
    "grouped products of the engine (arXiv:2310.18547)",
)
def adapter_products(step: EngineStep) -> Array:
    return step.kernels_s.get(ADAPTING, step.zeros)


@part("head and sampling", "product with the vocabulary, and the logits as memory traffic", LAWS)
def head_and_sampling(step: EngineStep) -> Array:
    return step.kernels_s.get(HEAD, step.zeros)


@part("vision encoder", "the encoder's products, attention and memory-bound operators, of the images of a step", LAWS)
def vision_encoder(step: EngineStep) -> Array:
    return step.kernels_s.get(SEEING, step.zeros)


@part("tensor-parallel communication", "alpha + c sqrt(MB f) + bytes f / B, f = 2 (n - 1) / n, twice a layer", NETWORK)
def tensor_parallel(step: EngineStep) -> Array:
    return step.exchange_s("tp")


@part(
    "expert-parallel communication",
    "tokens to the busiest rank and back: start + bytes f / B, f = (n - 1) / n; of two halves what nothing hides",
    "collective laws of the server; the dispatcher",
)
def expert_parallel(step: EngineStep) -> Array:
    return step.waited_share * step.exchange_s("ep")


@part(
    "waiting for experts",
    "max(a, f, c, c', (a + f + c + c') / m) - a: attention, experts, tokens there and back, of m micro-batches",
    "ping-pong pipeline (arXiv:2504.02263)",
)
def waiting_for_experts(step: EngineStep) -> Array:
    """Wait of the GPUs of attention for those that hold experts alone, and for tokens on their way."""
    return step.zeros if step.pools is None else np.asarray(step.pools.total_s - step.pools.attention)


@part(
    "communication of attention groups",
    "alpha + c sqrt(MB f) + bytes f / B, f = (n - 1) / n: all tokens gathered, sums scattered",
    NETWORK,
)
def attention_groups(step: EngineStep) -> Array:
    return step.exchange_s("dp")


@part("pipeline communication", "alpha + bytes of the hidden state / B, from stage to stage", NETWORK)
def pipeline(step: EngineStep) -> Array:
    job, placements = step.job, step.placements
    if job.efficiency.hides_exchanges:
        return step.zeros
    message = step.halves * step.rank.tokens * job.model.hidden * job.model.residual_streams * job.element_bytes
    near = np.where(placements.gpus <= job.network.node_ranks, 2.0, 1.0)
    once = collective_time_s(POINT_TO_POINT, message, 2.0, near, job.network)
    return np.asarray((as_array(placements.pp) - 1.0) * once)


# Published: rows from which llama.cpp copies weights that are in host memory to the GPU and multiplies there
# (ggml-cuda.cu, ggml_backend_cuda_device_offload_op: a minimum batch of 32).
OFFLOADED_ROWS = 32.0


@part(
    "layers on the CPU",
    "bytes of weights and cache / (0.67 x bandwidth of the host's memory); prompts: weights / PCIe, and as on the GPU",
    "published runs of llama.cpp with part of the layers on the GPU",
)
def layers_on_cpu(step: EngineStep) -> Array:
    cpu = step.job.cpu
    if cpu is None:
        return step.zeros
    share = 1.0 - step.job.gpu_share
    layers = operator_times(step.layers, cpu.device, backward=False)
    ends = operator_times(step.ends, cpu.device, backward=False)
    own = share * sum((time.forward_s for time in layers), step.zeros)
    whole = rank_weight_bytes(step.job.model, step.job.scheme, step.placements)
    copied = share * whole / cpu.copy_bytes_per_s
    return np.asarray(
        np.where(step.offloaded > 0, copied, own) + sum((np.ones(1) * time.forward_s for time in ends), step.zeros)
    )


class Waiting(Immutable):
    """A step, and the seconds that the accelerator has something to do in it."""

    step: EngineStep
    device_s: Array


MOST_NARROW_TP = 3.0  # ranks up to which the first size of `graphs` holds; published: SGLang server_args.py (tp_size)


def launching_s(step: EngineStep) -> Array:
    """Seconds of the host to start the kernels of a step that no graph replays.

        t = launches x launch_s + launches of attention and experts x python_s + scans x scan_s

    Products of narrow operands that no kernel before narrows launch one more. In pieces, of few tokens, attention and
    scans alone are started; a decode step that is replayed starts nothing.

    Parameters
    ----------
    step : operators of a rank, its tokens and sequences

    Returns
    -------
    ndarray of float, shape of the rank [s]

    Source: `graph.operators.launches`; constants in the engine's file.
    """
    job, engine = step.job, step.job.engine
    scan_us = engine.host.scan_us
    split, python = step.zeros, step.zeros
    compiled = step.halves * _narrow_launches(job, step.layers)
    times = ((step.layers, step.halves), (step.ends, np.ones(1)))
    for operator, often in ((operator, often) for operators, often in times for operator in operators):
        each = often * launches(operator)[0]
        if scan_us is not None and isinstance(operator, Scan):
            split = split + often * operator.layers * scan_us * MICRO * (each > 0)
        elif isinstance(operator, Attention | Scan):
            split = split + operator.layers * engine.python_s * each
        elif operator.module == EXPERTS:
            python = python + operator.layers * _with_cast(job, operator) * each
        else:
            compiled = compiled + operator.layers * _with_cast(job, operator) * each
    whole = step.rank.tokens > engine.host.piece_tokens
    started = split + whole * (engine.python_s * python + engine.launch_s * compiled)
    return np.asarray(started * (1.0 - _replayed(step)))


def _replayed(step: EngineStep) -> Array:
    """1 for decode steps that a graph replays, else 0."""
    graphs = step.job.engine.host.graphs
    sparse = step.job.model.experts is not None and np.any(as_array(step.placements.ep) > 1)
    if not graphs or (sparse and not step.job.sends_by(step.placements).decodes.replays):
        return step.zeros
    most = np.where(as_array(step.placements.tp) > MOST_NARROW_TP, graphs[-1], graphs[0])
    return np.asarray(step.pure_decode * (step.sequences <= most))


def _with_cast(job: ServingJob, operator: Operator) -> float:
    """Kernels of an operator over its own: 2 for products whose operands a kernel in front narrows."""
    if not isinstance(operator, Matmul) or operator.module in job.device.wide_modules:
        return 1.0
    law = job.device.expert_matmul if operator.grouped else job.device.matmul
    return 2.0 if law.cast_bytes_per_element > 0 else 1.0


def waiting_s(device_s: Array, starting_s: Array, between_s: Array, overlaps: bool) -> Array:
    """Seconds of a step in which the accelerator waits for the host.

        t = max(starting - device, 0) + between
        t = max(starting + between - device, 0)      where a step is made up while the one before runs

    Parameters
    ----------
    device_s, starting_s : of the accelerator, and of the host to start its kernels [s]
    between_s : of the host to make up a step and to read back the one before [s]
    overlaps : of the engine

    Returns
    -------
    ndarray of float, shape that all broadcast to [s]

    Source: own derivation, from a queue that the host fills and the accelerator empties; SGLang scheduler.py
    (event_loop_overlap), TensorRT-LLM py_executor.py (_executor_loop_overlap).
    """
    if overlaps:
        return np.maximum(starting_s + between_s - device_s, 0.0)
    return np.asarray(np.maximum(starting_s - device_s, 0.0) + between_s)


def between_steps_s(job: ServingJob, placements: ReplicaLayouts, sequences: ArrayLike) -> Array:
    """Seconds of the host between two steps: scheduling, preparing and reading back.

        t = step_s + parallel_step_s (with several ranks) + sequence_s x sequences

    Parameters
    ----------
    job, placements : the job, and placements that broadcast with the sequences
    sequences : of one group in the step [-]

    Returns
    -------
    ndarray of float, shape that both broadcast to [s]

    Source: the engine's file.
    """
    engine = job.engine
    parallel_s = engine.parallel_step_s * (placements.gpus > 1)
    return np.asarray(engine.step_s + parallel_s + engine.sequence_s * as_array(sequences))


@part(
    "host",
    "max(starting kernels - accelerator, 0) + step_s + sequences x sequence_s; all under the max where steps overlap",
    "the engine",
)
def host(waiting: Waiting) -> Array:
    """Wait of the accelerator: for kernels that start slower than they run, and the engine between two steps."""
    step, job = waiting.step, waiting.step.job
    if job.efficiency.fixed:
        return step.zeros
    between = between_steps_s(job, step.placements, step.sequences)
    return waiting_s(waiting.device_s, launching_s(step), between, job.engine.batching.overlaps)


KERNEL_PARTS = {
    PRODUCTS: linear_layers, MIXING: attention, MOVING: memory_bound_operators, ADAPTING: adapter_products,
    HEAD: head_and_sampling, SEEING: vision_encoder,
}  # fmt: skip
EXCHANGE_PARTS = {"tp": tensor_parallel, "ep": expert_parallel, "dp": attention_groups}
DEVICE_PARTS = (*KERNEL_PARTS.values(), layers_on_cpu, *EXCHANGE_PARTS.values(), waiting_for_experts, pipeline)


class Drafted(Immutable):
    """A step, and the work in it that the drafter has to follow."""

    job: ServingJob
    placements: ReplicaLayouts
    work: Work


@part(
    "drafts",
    "max(first pass, starting + draft_us) + (positions - 1) max(further pass, starting + draft_us) + verify_us",
    "operator laws of the accelerator, for the layers that draft; draft_us and verify_us are the engine's",
    lambda drafted: drafted.job.drafter is not None and drafted.job.drafter.passes > 0,
)
def drafting(drafted: Drafted) -> Array:
    """Seconds of the drafter in a step.

        t = t(tokens that were verified, prompts) + (positions - 1) t(width tokens of each sequence) + verify_us
        t = t(last state of each sequence) + verify_us                                      heads of Medusa
        t = t(joining of what was verified, prompts) + t(block of each sequence) + verify_us         DFlash

    The first pass reads the states of all tokens of the step and yields the first proposal; each further one reads the
    one before. Ranks are those of the model, of one pipeline stage, or fewer that it has for itself. Where no graph
    replays all passes together, the host prepares each.
    """
    job, work = drafted.job, drafted.work
    drafter = job.drafter
    assert drafter is not None
    one_stage = drafter.placements(drafted.placements)
    groups = job.groups(drafted.placements) / as_array(drafted.placements.dp)
    decodes, prefills = (of_the_fullest(as_array(count), groups) for count in (work.decodes, work.prefills))
    verified = replace(work, decodes=decodes, prefills=prefills, decode_logits=1.0)
    past, each = as_array(work.decode_past) + as_array(work.decode_tokens), as_array(work.decode_tokens)
    if not drafter.embeds:
        seconds = _pass_s(drafter.first, one_stage, Work(decodes=decodes + prefills))
    elif drafter.context is not None:
        seconds = _pass_s(drafter.context, one_stage, replace(verified, decode_logits=0.0))
        block = Work(decodes=decodes + prefills, decode_past=past, decode_tokens=each, decode_logits=drafter.width)
        seconds = seconds + _pass_s(drafter.further, one_stage, block)
    else:
        seconds = _pass_s(drafter.first, one_stage, verified)
    if drafter.passes > 1:
        proposing = Work(decodes=decodes, decode_past=past, decode_tokens=drafter.width)
        seconds = seconds + (drafter.passes - 1.0) * _pass_s(drafter.further, one_stage, proposing)
    checking_s = 0.0 if job.efficiency.fixed else job.engine.host.verify_us * MICRO
    return np.asarray(seconds + checking_s * (as_array(work.decodes) > 0))


def _pass_s(job: ServingJob, placements: ReplicaLayouts, work: Work) -> Array:
    """One pass of a drafter: its kernels, or the host that starts them; nothing where no sequence has any [s]."""
    step = _step(job, placements, work)
    device_s = np.asarray(sum(computed(DEVICE_PARTS, step).values()))
    fixed = job.efficiency.fixed
    starting_s = step.zeros if fixed else launching_s(step) + job.engine.host.draft_us * MICRO
    return np.where(step.rank.batch > 0, np.maximum(device_s, starting_s), 0.0)


STEP_PARTS: tuple[Part[EngineStep] | Part[Waiting] | Part[Drafted], ...] = (*DEVICE_PARTS, host, drafting)


def step_time(job: ServingJob, placements: ReplicaLayouts, work: Work) -> StepTime:
    """Time of one step of an engine under each placement.

        t = sum of STEP_PARTS

    With pipeline stages a step is the way of one of `pp` groups of sequences through all stages, so that every sequence
    gets a token in that time, and all of them do.

    Parameters
    ----------
    job, placements : the job, and placements that broadcast with the work
    work : sequences and tokens of the step

    Returns
    -------
    StepTime, shape that placements and work broadcast to, seconds [s]; zero where there is no work

    Source: each part names its own.
    """
    step = _step(job, placements, work)
    parts = computed(DEVICE_PARTS, step)
    parts |= computed((host,), Waiting(step, np.asarray(sum(parts.values()))))
    parts |= {drafting.name: np.zeros(step.rank.tp.shape)}
    if drafting.applies(drafted := Drafted(job, placements, work)):
        parts[drafting.name] = drafting(drafted)
    busy = step.rank.batch > 0
    return StepTime({name: np.where(busy, value, 0.0) for name, value in parts.items()}, step)


MICRO_BATCHES = (1, 2, 3, 4)  # chosen: more than published; each reads the weights of attention and experts again


def _step(job: ServingJob, placements: ReplicaLayouts, work: Work) -> EngineStep:
    """The operators of a step; with experts apart in the number of micro-batches that the job has, or the best."""
    if not placements.apart:
        return _step_in(job, placements, work)
    if job.micro_batches is not None:
        return _step_in(job, placements, work, job.micro_batches)
    tried = [_step_in(job, placements, work, count).pools for count in MICRO_BATCHES]
    seconds = np.stack([pools.total_s for pools in tried if pools is not None])
    return _step_in(job, placements, work, np.array(MICRO_BATCHES)[seconds.argmin(axis=0)])


def _step_in(job: ServingJob, placements: ReplicaLayouts, work: Work, micro_batches: ArrayLike = 1) -> EngineStep:
    """micro_batches : of a step whose experts are apart, of no less than a token of a rank [-]"""
    names = ("decodes", "decode_past", "decode_tokens", "prefills", "prefill_tokens", "prefill_past")
    arrays = np.broadcast_arrays(as_array(placements.tp), *(as_array(getattr(work, name)) for name in names))
    tp, decodes, past, each, prefills, tokens, before = arrays
    # Attention ranks share the sequences; the stages of a pipeline work on a group of them each.
    groups = job.groups(placements)
    decodes, prefills = (of_the_fullest(count, groups) for count in (decodes, prefills))
    together = decodes * each + prefills * tokens
    sequences, pure_decode = decodes + prefills, (prefills == 0).astype(float)
    kernels = job.engine.kernels
    with_logits = each if work.decode_logits is None else work.decode_logits
    sampled = decodes * with_logits + prefills * (tokens if kernels.all_logits or not job.answers else 1.0)
    gpu = job.server.accelerator
    below = kernels.reserved_below if reserves(job.engine, job.scheme, gpu) else 0.0
    per_head = kernels.decode == "per-head" or (job.scheme.cache.peak == FP8 and gpu.generation in kernels.fp8_per_head)
    gated = gpu.generation not in kernels.ungated_on
    padded = kernels.sparse_heads.get(gpu.generation, 0.0)
    picks = job.model.indexer
    rates = kernels.block_rates.get(picks.kind, {}) if picks else {}
    wide, narrow = rates.get(gpu.generation, (0.0, 0.0))
    masked = (picks.kind,) if picks and not kernels.picks(picks.kind, gpu.generation) else ()
    fused = tuple(kind for kind, there in kernels.fused_scans.items() if gpu.generation in there)
    prompts = replace(
        _expert_kernels(job, placements),
        reserved_below=below,
        reserved_gated=gated,
        sparse_masked=masked,
        sparse_heads=padded,
        block_rate=wide if job.cached_element_bytes >= SIXTEEN_BIT else narrow,
        fused_scans=fused,
    )
    if not job.answers:
        prompts = replace(prompts, cache="none")
    decoding = replace(
        prompts,
        attention="decode",
        repeats_kv=kernels.repeats_kv or per_head,
    )
    whole = flat = step_inputs(job, placements, tp, together, 1.0, 0.0, prompts)
    seeing = _seeing(job, placements, tp, prefills * tokens, prompts)
    halves = halves_of(job, together, pure_decode)
    if placements.apart:
        halves = np.minimum(as_array(micro_batches), np.maximum(np.floor(together), 1.0))
    if job.halves or placements.apart:  # of sequences, or of a prompt where there is but one
        together, decodes = together / halves, decodes / halves
        cut = np.maximum(prefills / halves, np.minimum(prefills, 1.0))
        each_half = tokens * np.where(prefills > 0, prefills / np.maximum(halves * cut, 1e-12), 1.0)
        prefills, tokens, before = cut, each_half, before + (tokens - each_half) / 2.0
        flat = step_inputs(job, placements, tp, together, 1.0, 0.0, prompts)
    # The time of attention, scans and the cache depends on whose tokens they are.
    layers = [
        op
        for op in _of_both_phases(job, placements, flat, pure_decode)
        if not isinstance(op, Attention | Scan) and op.name not in (*OF_SEQUENCES, "scan")
    ]
    for inputs in (
        step_inputs(job, placements, tp, decodes, each, past, decoding),
        step_inputs(job, placements, tp, prefills, tokens, before, prompts),
    ):
        if np.any(inputs.rank.batch > 0):
            layers += sequence_operators(inputs)
    if job.adapters:
        there = job.model, job.adapters, flat.rank.tp
        layers += adapter_operators(*there, together, decodes + prefills, job.element_bytes)
    ends = (
        *embedding_operators(whole),
        *sampling_operators(step_inputs(job, placements, tp, sampled, 1.0, 0.0, prompts)),
        *seeing,
    )
    return EngineStep(
        job=job,
        placements=placements,
        layers=tuple(layers),
        ends=ends,
        rank=flat.rank,
        sequences=sequences,
        pure_decode=pure_decode,
        halves=halves,
        experts=_experts_apart(job, placements, flat.rank.tokens, prompts) if placements.apart else None,
    )


def _experts_apart(job: ServingJob, placements: ReplicaLayouts, tokens: Array, kernels: Kernels) -> ExpertsApart:
    """What a GPU of experts does for so many tokens of each group of attention, of which it sends its share on."""
    each = tokens * placements.dp / placements.expert_gpus
    inputs = step_inputs(job, placements, np.ones(tokens.shape), each, 1.0, 0.0, kernels)
    return ExpertsApart(tuple(op for op in layer_operators(inputs) if _of_experts(op)), inputs.rank)


def _of_experts(operator: Operator) -> bool:
    """Whether GPUs that hold experts alone run it: not what joins the tensor-parallel ranks of attention."""
    joins = isinstance(operator, Collective) and operator.group == "tp"
    return is_of_experts(operator.module, operator.name) and not joins


def halves_of(job: ServingJob, tokens: Array, pure_decode: Array) -> Array:
    """Parts that a step is computed in: 2 where halves are asked for and it has tokens enough for the engine.

        halves = 2      tokens >= halves_from of a decode step, or of one with prompts; else 1

    Parameters
    ----------
    job : its engine says from how many tokens of a rank it splits a step
    tokens, pure_decode : of a rank, and 1 where no prompt runs, shape (points,) [-]

    Returns
    -------
    ndarray of float, shape (points,) [-]

    Source: vLLM check_ubatch_thresholds (v1/worker/ubatch_splitting.py); SGLang two_batch_overlap.py.
    """
    if not job.halves:
        return np.ones(tokens.shape)
    decodes, prompts = job.engine.exchanges.halves_from
    return np.where(tokens >= np.where(pure_decode > 0, decodes, prompts), 2.0, 1.0)


def _expert_kernels(job: ServingJob, placements: ReplicaLayouts) -> Kernels:
    """Kernels of the engine, with how tokens of prompts get to experts, in the format of the activations if it may."""
    dispatcher = job.sends_by(placements)
    exchange, narrow = dispatcher.prompts, job.scheme.activations.element_bytes
    return Kernels.chosen(
        job.engine.kernels,
        dispatch=exchange.dispatch,
        exchange_start_s=exchange.start_s,
        dispatched_bytes=narrow if dispatcher.narrow and narrow < job.element_bytes else None,
        expert_skew=job.expert_skew,
        redundant_experts=job.redundant_experts,
        expert_input="indexed" if in_triton(job) and exchange.dispatch == "to-all" else "permuted",
    )


def _of_both_phases(
    job: ServingJob, placements: ReplicaLayouts, inputs: GraphInputs, pure_decode: Array
) -> Iterator[Operator]:
    """Operators of a layer; exchanges with experts are those of prompts where any runs, else those of decodes.

    Without experts where these have GPUs of their own.
    """
    operators = layer_operators(inputs)
    if placements.apart:
        yield from (operator for operator in operators if not _of_experts(operator))
        return
    if not job.dispatcher.by_phase or job.model.experts is None:
        yield from operators
        return
    chosen = job.dispatcher.decodes
    kernels = replace(inputs.kernels, dispatch=chosen.dispatch, exchange_start_s=chosen.start_s)
    decoding = (op for op in layer_operators(replace(inputs, kernels=kernels)) if _sends(op))
    for operator in operators:
        if isinstance(operator, Collective) and _sends(operator):
            yield _at(operator, 1.0 - pure_decode)
            yield _at(next(decoding), pure_decode)
        else:
            yield operator


def _sends(operator: Operator) -> bool:
    """Whether tokens go to experts or come back."""
    return isinstance(operator, Collective) and operator.group == "ep"


def _at(operator: Operator, points: Array) -> Operator:
    """An exchange at the points that are 1, nowhere else."""
    assert isinstance(operator, Collective)
    return replace(operator, forward=tuple((operation, message * points) for operation, message in operator.forward))


def _seeing(
    job: ServingJob, placements: ReplicaLayouts, tp: Array, prompt_tokens: Array, prompts: Kernels
) -> Iterator[Operator]:
    """Operators that encode the images of as many prompt tokens; nothing where requests have none.

    A piece of a prompt encodes as large a share of its images; an engine encodes each image once, whole.
    """
    images, tower = job.images, job.model.vision
    if images is None or tower is None or not np.any(prompt_tokens > 0):
        return
    pieces = images.each * images.seen.pieces * prompt_tokens / images.prompt_tokens
    kernels = replace(prompts, cache="none", windows=True)
    inputs = step_inputs(job, placements, tp, pieces, images.seen.patches, 0.0, kernels)
    encoding = replace(inputs, model=tower.encoder, weight_forward_bytes=0.0 * tp)
    yield from vision_operators(tower, encoding, layer_operators(encoding))


def _narrow_launches(job: ServingJob, operators: Iterable[Operator]) -> float:
    if not job.scheme.weight_only:
        return 0.0
    each = job.engine.narrow_kernel(job.scheme.weights).launches
    wide = job.device.wide_modules
    return each * sum(op.layers for op in operators if isinstance(op, Matmul) and op.module not in wide)


# Static batches: all prompts together, then one token a step for all sequences until the last one.

# Defined: decode steps are timed at ends and middle of the answer (Simpson's rule: exact up to the third power).
PLACES, WEIGHTS = (0.0, 0.5, 1.0), (1.0 / 6.0, 4.0 / 6.0, 1.0 / 6.0)


class StaticBatch(Immutable):
    """Latencies of a batch that starts together; arrays of shape (points,), seconds [s].

    prefill : all prompts; decode : one step, averaged over the answer
    """

    prefill: StepTime
    decode: StepTime
    ttft_s: Array
    tpot_s: Array
    request_s: Array


def prefill_time(
    job: ServingJob, placements: ReplicaLayouts, sequences: ArrayLike, inputs: ArrayLike, past: ArrayLike = 0.0
) -> tuple[StepTime, Array]:
    """One step of a prefill of some prompts, and how many such steps it takes.

        steps = max(ceil(sequences x new tokens / limit), 1)

    Steps take at most `max_step_tokens`; where prompts are not cut, at least one whole prompt.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sequences : prompts [-]
    inputs, past : tokens of a prompt, and of these the cached ones [tokens]

    Returns
    -------
    (StepTime, steps), shape that the sizes and placements broadcast to, seconds [s] and [-]

    Source: chunked prefill (arXiv:2308.16369); the limit stands in the engine's file.
    """
    sequences, inputs, past = np.broadcast_arrays(as_array(sequences), as_array(inputs), as_array(past))
    limit = job.engine.batching.max_step_tokens * job.groups(placements)
    new = np.maximum(inputs - past, 1.0)
    steps = np.maximum(np.ceil(sequences * new / limit), 1.0)
    if not job.engine.batching.chunked_prefill:
        steps = np.minimum(steps, np.maximum(sequences, 1.0))
    share = sequences / steps
    cut = np.minimum(share, 1.0)  # below one prompt a step, a prompt takes several
    work = Work(
        prefills=np.maximum(share, 1.0) * (sequences > 0),
        prefill_tokens=new * cut,
        prefill_past=past + new * (1.0 - cut) / 2.0,
    )
    return step_time(job, placements, work), steps


class Encoding(Immutable):
    """Texts that are read in steps, without an answer; arrays of shape (points,).

    step : one of the steps; steps : that these texts take [-]
    """

    step: StepTime
    steps: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(self.step.total_s * self.steps)


def texts_of_a_step(job: ServingJob, placements: ReplicaLayouts, traffic: Traffic) -> Array:
    """Texts that a step of an engine takes at most, where they get no answer.

        texts = groups x max(min(floor(max_step_tokens / tokens), max_sequences), 1)

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    traffic : tokens of a text; where texts are padded, those of the longest of as many

    Returns
    -------
    ndarray of float, shape (placements,) [-]

    Source: next_batch of Text Embeddings Inference (core/src/queue.rs), which counts padded tokens where it pads;
    vLLM's scheduler.
    """
    batching = job.engine.batching
    tokens, most = traffic.new_inputs, float(batching.max_sequences)
    if batching.pads:
        tokens = float(traffic.longest_of(min(most, max(batching.max_step_tokens // tokens, 1.0))))
    room = max(min(batching.max_step_tokens // tokens, most), 1.0)
    return np.asarray(job.groups(placements) * room)


def encoding_time(job: ServingJob, placements: ReplicaLayouts, texts: ArrayLike, traffic: Traffic) -> Encoding:
    """Steps in which a replica reads texts that get no answer.

        steps = ceil(texts / texts of a step) x pieces
        t(step) = t(texts / steps at once, of their mean length)      or padded to the longest of them
        pieces = max(ceil(tokens / max_step_tokens), 1)               where the engine cuts texts, which no encoder can

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,) or (points,)
    texts : that are there [-]
    traffic : tokens of a text, how they spread, and the share that is cached

    Returns
    -------
    Encoding, shape that texts and placements broadcast to, seconds [s] and [-]

    Source: own derivation; sentence-transformers SentenceTransformer.encode for padding.
    """
    batching = job.engine.batching
    new, cached = traffic.new_inputs, traffic.inputs - traffic.new_inputs
    texts = np.broadcast_to(as_array(texts), np.broadcast_shapes(np.shape(texts), placements.tp.shape))
    cut = batching.chunked_prefill and not job.model.bidirectional
    pieces = max(np.ceil(new / batching.max_step_tokens), 1.0) if cut else 1.0
    batches = np.maximum(np.ceil(texts / texts_of_a_step(job, placements, traffic) - 1e-9), 1.0)
    together = texts / batches
    longest = traffic.longest_of(together) if batching.pads else traffic.inputs
    tokens = np.maximum(longest - cached, 1.0) / pieces
    past = cached + new * (1.0 - 1.0 / pieces) / 2.0
    return Encoding(
        step_time(job, placements, Work(prefills=together, prefill_tokens=tokens, prefill_past=past)), batches * pieces
    )


def decode_time(
    job: ServingJob, placements: ReplicaLayouts, sequences: ArrayLike, inputs: ArrayLike, outputs: ArrayLike,
    tokens_per_step: ArrayLike = 1.0,
) -> StepTime:  # fmt: skip
    """Mean time of a decode step of sequences that grow from their prompt to the end of their answer.

        t = (t(0) + 4 t(1/2) + t(1)) / 6

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    sequences : that get a token in every step [-]
    inputs, outputs : tokens of a prompt and of an answer [tokens]
    tokens_per_step : that are computed for a sequence in a step, more than 1 with speculation [tokens]

    Returns
    -------
    StepTime, shape that the sizes and placements broadcast to, seconds [s]

    Source: Simpson's rule over the answer; exact up to the third power of the length.
    """
    arrays = np.broadcast_arrays(as_array(placements.tp), *(as_array(one) for one in (sequences, inputs, outputs)))
    _, sequences, inputs, outputs = arrays
    grown = np.maximum(outputs - 2.0, 0.0)
    rows = np.tile(np.arange(len(grown)) if len(placements) > 1 else np.zeros(len(grown), dtype=int), len(PLACES))
    work = Work(
        decodes=np.tile(sequences, len(PLACES)),
        decode_past=np.concatenate([inputs + place * grown for place in PLACES]),
        decode_tokens=tokens_per_step,
    )
    found = step_time(job, placements[rows], work)
    return found.at(_mean)


def _mean(values: Array) -> Array:
    """The weighted mean over the places."""
    return np.asarray(np.array(WEIGHTS) @ values.reshape(len(PLACES), -1))


def static_batch(
    job: ServingJob, placements: ReplicaLayouts, batch: ArrayLike, inputs: ArrayLike, outputs: ArrayLike,
    capacity: ArrayLike = np.inf, traffic: Traffic | None = None,
) -> StaticBatch:  # fmt: skip
    """Latencies of a batch that starts together.

        ttft = prefill + waves before x request of one wave
        request = (prefill + (outputs - 1) x step) x waves
        ttft = request = encoding_time                      no outputs

    A pool of `capacity` sequences takes a larger batch in waves, each starting as the one before ends.

    Parameters
    ----------
    job, placements : the job, and placements of shape (placements,)
    batch : sequences [-]
    inputs, outputs : tokens of a prompt and of an answer [tokens]
    capacity : sequences that run at once [-]
    traffic : prefix hits and speculation; None: neither

    Returns
    -------
    StaticBatch, shape that the sizes and placements broadcast to, seconds [s]

    Source: own derivation; tokens gained by speculation after arXiv:2211.17192.
    """
    batch, outputs = as_array(batch), as_array(outputs)
    if traffic is not None and not traffic.outputs:
        read = encoding_time(job, placements, batch * traffic.documents, traffic)
        read_s = np.asarray(read.total_s + job.request_s)
        return StaticBatch(read.step, read.step, read_s, np.zeros(read_s.shape), read_s)
    together = np.minimum(batch, np.maximum(as_array(capacity), 1.0))
    waves = batch / together
    gained = traffic.tokens_per_step if traffic else 1.0
    past = traffic.inputs - traffic.new_inputs if traffic else 0.0
    prefill, steps = prefill_time(job, placements, together, inputs, past)
    decode = decode_time(job, placements, together, inputs, outputs, traffic.draft_tokens + 1.0 if traffic else 1.0)
    drafts = 1.0 + traffic.draft_tokens * traffic.draft_cost if traffic else 1.0
    step_s = decode.total_s * drafts / gained
    prefill_s = prefill.total_s * steps + job.request_s
    if job.engine.batching.first_token == "decode":
        prefill_s = prefill_s + step_s
    tpot_s = step_s * (outputs > 1.0)
    wave_s = prefill_s + np.maximum(outputs - 1.0, 0.0) * tpot_s
    full = np.floor(waves)  # a request waits for half of the full waves on average, or for all of them in the last
    waves_before = np.asarray((full * (full - 1.0) / 2.0 + (waves - full) * full) / waves)
    ttft_s = prefill_s + waves_before * wave_s
    return StaticBatch(prefill, decode, ttft_s, tpot_s, wave_s * waves)


# A step operator by operator.


class _At(Immutable):
    """The point of a step that is looked at."""

    time: StepTime

    def one(self, value: Array) -> float:
        """A figure of all points of the step, at the one."""
        return float(self.time.picked(value)[0])


def operator_costs(time: StepTime) -> tuple[OperatorCost, ...]:
    """Every operator of a step, in all layers of the fullest stage.

        seconds = layers on the stage x law

    The seconds sum to the parts of the step but the host's and those between pipeline stages; where experts have GPUs
    of their own, operators are those of a GPU with attention, and do not wait (`expert_costs` has the others).

    Parameters
    ----------
    time : a step; its first point is looked at

    Returns
    -------
    tuple of OperatorCost, in the order in which they run [s], [FLOP], [bytes]

    Source: `laws.operator_time.operator_work` and `laws.network.exchange_times`.
    """
    step, at = time.step, _At(time)
    layers = _of_group(step, at, step.layers, step.longer, step.halves)
    ends = _of_group(step, at, step.ends, lambda _: step.ends_on_gpu * np.ones(1), np.ones(1))
    return (*layers, *ends)


def expert_costs(time: StepTime) -> tuple[OperatorCost, ...]:
    """Every operator of a GPU that holds experts alone, and the tokens on their way to it and back.

        seconds = micro-batches x layers with experts x law

    They sum to what such a GPU works in a step and to the time of the links, which may overlap.

    Parameters
    ----------
    time : a step; its first point is looked at

    Returns
    -------
    tuple of OperatorCost, in the order in which they run, none where no GPU holds experts alone [s], [FLOP], [bytes]

    Source: as `operator_costs`; the exchange is that of `EngineStep.pools`.
    """
    step, at = time.step, _At(time)
    if step.experts is None:
        return ()
    works = {id(work.operator): work for work in operator_work(step.experts.layers, step.job.device, backward=False)}
    costs = (
        _sent(step, at, operator)
        if isinstance(operator, Collective)
        else _kernel(works[id(operator)], at, step.longer(operator))
        for operator in step.experts.layers
        if not isinstance(operator, Collective) or _sends(operator)
    )
    return tuple(replace(cost, parts={ON_EXPERTS: cost.seconds}) for cost in costs)


ON_EXPERTS = "experts apart"
"""What GPUs of experts and the links to them do while those of attention work too: no part of a step alone."""


def _sent(step: EngineStep, at: _At, operator: Collective) -> OperatorCost:
    ((_, message),) = operator.forward
    times = operator.layers * at.one(step.halves)
    return OperatorCost(
        operator=operator,
        sizes={name: at.one(size) for name, size in operator_sizes(operator).items()},
        times=times,
        flops=0.0,
        moved_bytes=times * at.one(message),
        parts={ON_EXPERTS: at.one(step.sent_s(operator))},
        bound=NETWORK_TIME,
    )


def _of_group(
    step: EngineStep, at: _At, operators: tuple[Operator, ...], longer: Callable[[Operator], Array], often: Array
) -> Iterator[OperatorCost]:
    """longer : how much longer kernels take than by their law; often : exchanges run in a step [-]"""
    works = {id(work.operator): work for work in operator_work(operators, step.job.device, backward=False)}
    for operator in operators:
        if not isinstance(operator, Collective):
            yield _kernel(works[id(operator)], at, longer(operator))
        elif operator.group in EXCHANGE_PARTS and not step.job.efficiency.hides_exchanges:
            yield _exchange(step, at, operator, often)


def _kernel(work: OperatorWork, at: _At, longer: Array) -> OperatorCost:
    operator = work.operator
    seconds = at.one(longer * work.seconds[0])
    return OperatorCost(
        operator=operator,
        sizes={name: at.one(size) for name, size in operator_sizes(operator).items()},
        times=at.one(longer * operator.layers),
        flops=at.one(longer * work.flops[0]),
        moved_bytes=at.one(longer * work.moved_bytes[0]),
        parts={KERNEL_PARTS[at.time.step.kind(operator)].name: seconds} if seconds else {},
        bound=max(work.bounds_s, key=lambda name: at.one(work.bounds_s[name])),
    )


def _exchange(step: EngineStep, at: _At, operator: Collective, often: Array) -> OperatorCost:
    factor = step.job.engine.efficiency.collectives
    times = exchange_times((operator,), step.rank, step.job.network, factor, backward=False)
    waited = step.waited_share if operator.group == "ep" else np.ones(1)
    seconds = at.one(often * waited * times[operator.group][0])
    message = sum((at.one(size) for _, size in operator.forward), 0.0)
    return OperatorCost(
        operator=operator,
        sizes={name: at.one(size) for name, size in operator_sizes(operator).items()},
        times=operator.layers * at.one(often),
        flops=0.0,
        moved_bytes=operator.layers * at.one(often) * message,
        parts={EXCHANGE_PARTS[operator.group].name: seconds} if seconds else {},
        bound=NETWORK_TIME,
    )


# The speed of light: latencies that no software can beat on an accelerator.


def fastest(job: ServingJob, placement: ReplicaLayouts, traffic: Traffic, running: float) -> tuple[float, float, float]:
    """The least time to the first token, per token and of a request that the accelerators allow.

        t = max(operations / peak, bytes / bandwidth) of every operator
        tpot = t(a decode of all running requests) / tokens of a step
        ttft = t(the prefill of one prompt)
        request = ttft + (outputs - 1) tpot
        ttft = request = t(all texts of one request)      no outputs

    Weights and caches are read once in a step; exchanges, launches and the host take no time.

    Parameters
    ----------
    job, placement : the job, and one placement
    traffic : lengths of prompts and answers, prefix hits and speculation
    running : requests that decode together at the least [-]

    Returns
    -------
    (float, float, float) : seconds [s]

    Source: roofline model (S. Williams, A. Waterman, D. Patterson, CACM 52, 2009), peaks of the profile.
    """
    ideal = serving_job(job.model, job.engine, job.scheme, job.server, Efficiency(ideal=True))
    if not traffic.outputs:
        read_s = float(encoding_time(ideal, placement, traffic.documents, traffic).total_s.reshape(-1)[0])
        return read_s, 0.0, read_s
    prefill, steps = prefill_time(ideal, placement, 1.0, traffic.inputs, traffic.inputs - traffic.new_inputs)
    decode = decode_time(ideal, placement, running, traffic.inputs, traffic.outputs, traffic.draft_tokens + 1.0)
    tpot_s = float(decode.total_s[0]) / traffic.tokens_per_step if traffic.outputs > 1.0 else 0.0
    ttft_s = float((prefill.total_s * steps).reshape(-1)[0])
    return ttft_s, tpot_s, ttft_s + max(traffic.outputs - 1.0, 0.0) * tpot_s
