"""Time of one step of an engine: the tokens of prefills and decodes that it takes together.

Linear layers, norms and exchanges see all tokens of the step at once; attention works on each kind of sequence by
itself. A pure prefill or a pure decode is a step of which the other part is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.operators import Array, Attention, Kernels, Matmul, Operator, RankShape, Scan, as_array
from xe_sizer.graph.transformer import embedding_operators, layer_operators, sampling_operators, sequence_operators
from xe_sizer.laws.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.laws.host import exposed_launch_time_s
from xe_sizer.laws.operator_time import exchange_times, launch_counts, operator_times
from xe_sizer.serving.job import ServingJob
from xe_sizer.serving.layout import ReplicaLayouts

PARTS = (
    "linear layers",
    "attention",
    "memory-bound operators",
    "head and sampling",
    "tensor-parallel communication",
    "expert-parallel communication",
    "pipeline communication",
    "host",
)
MATMUL = "t0 + (a^p + b^p)^(1/p), a = 2 m n k / (e_f peak), b = bytes of weights and activations / (e_b bandwidth)"
LAWS = "operator laws of the accelerator"
NETWORK = "collective laws of the server, with the engine's own start-up time"

FORMULAS: dict[str, tuple[str, str]] = {
    "linear layers": (MATMUL, LAWS),
    "attention": (
        "prompts: t0 + F (1 + s0/s) / (e peak) + bytes / bandwidth; decoding: t0 + KV bytes / (e bandwidth)", LAWS
    ),
    "memory-bound operators": ("floor of a launch + bytes / (efficiency x bandwidth)", LAWS),
    "head and sampling": ("product with the vocabulary, and the logits as memory traffic", LAWS),
    "tensor-parallel communication": ("alpha + c sqrt(MB f) + bytes f / B, f = 2 (n - 1) / n, twice a layer", NETWORK),
    "expert-parallel communication": ("alpha + c sqrt(MB f) + bytes f / B, f = (n - 1) / n, twice a layer", NETWORK),
    "pipeline communication": ("alpha + bytes of the hidden state / B, from stage to stage", NETWORK),
    "host": (
        "time of a step + sequences x time of one + launches that no graph replays and no kernel hides", "the engine"
    ),
}  # fmt: skip
"""Part of a step (PARTS) -> formula and source."""

NOTHING_LEARNS = Learning(base=False)


@dataclass(frozen=True, eq=False)
class Work:
    """What one step of a replica processes; arrays that broadcast with the placements.

    decodes : sequences that get their next `decode_tokens` tokens (1, or more with speculation) on `decode_past`
    prefills : sequences of which `prefill_tokens` are processed on `prefill_past` tokens that are cached already
    """

    decodes: ArrayLike = 0.0
    decode_past: ArrayLike = 0.0
    prefills: ArrayLike = 0.0
    prefill_tokens: ArrayLike = 1.0
    prefill_past: ArrayLike = 0.0
    decode_tokens: ArrayLike = 1.0


@dataclass(frozen=True, eq=False)
class StepTime:
    """Seconds of a step, arrays of shape (points,): by part (they sum to the step) and by module of the model."""

    parts: dict[str, Array]
    modules: dict[str, Array]

    @property
    def total_s(self) -> Array:
        return np.asarray(sum(self.parts.values()))


@dataclass(frozen=True, eq=False)
class _Step:
    """A step's operators with their rank, and what else is counted: tokens, sequences and decodes of one rank."""

    layers: tuple[Operator, ...]
    ends: tuple[Operator, ...]
    rank: RankShape
    sequences: Array
    pure_decode: Array


def step_time(job: ServingJob, placements: ReplicaLayouts, work: Work) -> StepTime:
    """Time of one step under each placement.

    parts : operator laws of the accelerator, exchanges inside the replica, and what the accelerator waits for the
    host. With pipeline stages a step is the way of one of `pp` groups of sequences through all stages, so that every
    sequence gets a token in that time, and all of them do.

    Returns
    -------
    StepTime, arrays of the shape that placements and work broadcast to, seconds [s]; zero where there is no work
    """
    step = _step(job, placements, work)
    fullest = _fullest_stage(job, placements)
    times = [(time, fullest) for time in operator_times(step.layers, job.device, backward=False)]
    times += [(time, np.ones(1)) for time in operator_times(step.ends, job.device, backward=False)]
    shape = step.rank.tp.shape
    parts = {name: np.zeros(shape) for name in PARTS}
    modules: dict[str, Array] = {}
    for time, share in times:
        part, module, seconds = _part_of(time.operator), time.operator.module, share * time.forward_s
        parts[part] = parts[part] + seconds
        modules[module] = modules.get(module, np.zeros(shape)) + seconds
    efficiency = job.engine.efficiency.collectives
    exchanged = exchange_times((*step.layers, *step.ends), step.rank, job.network, efficiency, backward=False)
    if not job.efficiency.hides_exchanges:
        parts["tensor-parallel communication"] = parts["tensor-parallel communication"] + exchanged["tp"][0]
        parts["expert-parallel communication"] = parts["expert-parallel communication"] + exchanged["ep"][0]
        parts["pipeline communication"] = _pipeline_s(job, placements, step)
    if not job.efficiency.fixed:
        parts["host"] = _host_s(job, placements, step, np.asarray(sum(parts.values())))
    busy = step.rank.batch > 0
    return StepTime({name: np.where(busy, value, 0.0) for name, value in parts.items()}, modules)


def _fullest_stage(job: ServingJob, placements: ReplicaLayouts) -> Array:
    """How much longer the layers take where stages differ: all groups go at the pace of ceil(layers / pp) [-]."""
    stages = as_array(placements.pp if job.engine.pipelined else np.ones_like(placements.pp))
    return np.asarray(np.ceil(job.model.layers / stages) * stages / job.model.layers)


def _part_of(operator: Operator) -> str:
    if operator.module == "head":
        return "head and sampling"
    if isinstance(operator, Matmul):
        return "linear layers"
    return "attention" if isinstance(operator, Attention | Scan) else "memory-bound operators"


def _step(job: ServingJob, placements: ReplicaLayouts, work: Work) -> _Step:
    names = ("decodes", "decode_past", "decode_tokens", "prefills", "prefill_tokens", "prefill_past")
    arrays = np.broadcast_arrays(as_array(placements.tp), *(as_array(getattr(work, name)) for name in names))
    tp, decodes, past, each, prefills, tokens, before = arrays
    # Attention ranks share the sequences; the stages of a pipeline work on a group of them each.
    groups = job.groups(placements)
    # A sequence is not cut: with fewer than groups some of them are idle, and the fullest decides.
    decodes, prefills = (np.maximum(count / groups, np.minimum(count, 1.0)) for count in (decodes, prefills))
    together = decodes * each + prefills * tokens
    kernels = job.engine.kernels
    prompts = Kernels.chosen(kernels)
    decoding = replace(
        prompts,
        attention="decode",
        repeats_kv=kernels.repeats_kv or kernels.decode == "per-head",
    )
    flat = _inputs(job, placements, tp, together, 1.0, 0.0, prompts)
    layers = [op for op in layer_operators(flat) if not _own_kind(op)]
    for inputs in (
        _inputs(job, placements, tp, decodes, each, past, decoding),
        _inputs(job, placements, tp, prefills, tokens, before, prompts),
    ):
        if np.any(inputs.rank.batch > 0):
            layers += sequence_operators(inputs)
    sampled = decodes * each + prefills * (tokens if kernels.all_logits else 1.0)
    ends = (
        *embedding_operators(flat),
        *sampling_operators(_inputs(job, placements, tp, sampled, 1.0, 0.0, prompts)),
    )
    return _Step(tuple(layers), ends, flat.rank, decodes + prefills, (prefills == 0).astype(float))


def _own_kind(operator: Operator) -> bool:
    """Operators whose cost depends on whose tokens they are: attention, scans, and the cache."""
    return isinstance(operator, Attention | Scan) or operator.name in ("cache write", "scan")


def _inputs(
    job: ServingJob,
    placements: ReplicaLayouts,
    tp: Array,
    batch: Array,
    sequence: ArrayLike,
    past: ArrayLike,
    kernels: Kernels,
) -> GraphInputs:
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
        cached_element_bytes=job.scheme.cache.element_bytes,
    )


def _widening_bytes(job: ServingJob, rank: RankShape) -> Array:
    """Traffic per weight of formats that are widened in memory before the product; few rows run fused [bytes]."""
    if not job.scheme.weight_only or job.efficiency.fixed:
        return np.zeros(rank.tp.shape)
    narrow = job.engine.narrow_kernel(job.scheme.weights.name)
    return np.asarray(narrow.traffic_bytes * (rank.tokens >= narrow.widened_rows), dtype=np.float64)


def _pipeline_s(job: ServingJob, placements: ReplicaLayouts, step: _Step) -> Array:
    """Sends of the hidden state from stage to stage [s]."""
    message = step.rank.tokens * job.model.hidden * job.element_bytes
    stages = as_array(placements.pp)
    near = np.where(placements.gpus <= job.network.node_ranks, 2.0, 1.0)
    once = collective_time_s(POINT_TO_POINT, message, 2.0, near, job.network)
    return np.asarray((stages - 1.0) * once)


def _host_s(job: ServingJob, placements: ReplicaLayouts, step: _Step, device_s: Array) -> Array:
    """What the accelerator waits for: kernels that start slower than they run, and the engine between two steps [s]."""
    engine = job.engine
    launches = sum(launch_counts(ops)[0] for ops in (step.layers, step.ends)) + _narrow_launches(job, step.layers)
    waits = exposed_launch_time_s(launches, engine.launch_s, device_s)
    replayed = step.pure_decode if engine.host.graphs else 0.0
    between = engine.step_s + engine.parallel_step_s * (placements.gpus > 1) + engine.sequence_s * step.sequences
    return np.asarray(waits * (1.0 - replayed) + between)


def _narrow_launches(job: ServingJob, operators: Iterable[Operator]) -> float:
    if not job.scheme.weight_only:
        return 0.0
    each = job.engine.narrow_kernel(job.scheme.weights.name).launches
    wide = job.device.wide_modules
    return each * sum(op.layers for op in operators if isinstance(op, Matmul) and op.module not in wide)
