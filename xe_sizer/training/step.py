"""The timeline of one optimizer step: micro-batches, pipeline, data parallelism, optimizer."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Array, IntArray, as_array
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, collective_time_s, copy_time_s
from xe_sizer.laws.parts import Part, computed, part
from xe_sizer.training.flops import forward_flops, needed_flops, recomputed_flops
from xe_sizer.training.job import Job, RankShapes
from xe_sizer.training.layout import OFFLOAD, RECOMPUTE, Layouts
from xe_sizer.training.orthogonalisation import orthogonalisation_time_s
from xe_sizer.training.padding import Sequences
from xe_sizer.training.pipeline import Pipeline, pipeline
from xe_sizer.training.sharding import Census, Shards, adapter_factors, census, layers_per_stage
from xe_sizer.training.stage_time import MICRO_BATCH_PARTS, MicroBatch, StageTime, module_time, stage_time
from xe_sizer.training.state_bytes import StateBytes

# Bytes per element of a fused Adam step: gradient read, weight written (16 bit), master and two moments read and
# written; clipping reads the gradient once more and scales it. Multi-tensor updates run as separate kernels that
# move about twice as much (torch.optim foreach implementation).
CLIP_BYTES = 12.0
MULTI_TENSOR_FACTOR = 2.0


@frozen
class Timeline:
    """One optimizer step under each layout, shape (layout,).

    components : name -> seconds; they sum to `step_s`
    slowest : the stage that decides (0 first, 1 last, 2 middle)
    modules : module -> (forward, backward) seconds on the slowest stage
    flops, recompute_flops : of one GPU on average [FLOP]
    Modules and FLOPs are counted when asked for, as a search never asks.
    """

    job: Job
    layouts: Layouts
    components: dict[str, Array]
    slowest: IntArray
    known_sequences: Sequences | None = None

    @cached_property
    def sequences(self) -> Sequences:
        """What padding makes of the data under each layout."""
        return self.known_sequences or self.job.sequences(self.layouts)

    @property
    def step_s(self) -> Array:
        return np.asarray(sum(self.components.values()))

    @cached_property
    def modules(self) -> dict[str, tuple[Array, Array]]:
        """Kernels of all micro-batches by module."""
        shapes = self.job.rank_shapes(self.layouts, as_array(self.sequences.critical_tokens))
        accum = as_array(self.layouts.grad_accum)
        one = module_time(self.job, self.layouts, shapes, self.slowest)
        return {name: (accum * forward, accum * backward) for name, (forward, backward) in one.items()}

    @cached_property
    def flops(self) -> Array:
        """What an average micro-batch needs: mean lengths, experts evenly used."""
        inputs = self.job.graph(self.layouts, as_array(self.sequences.mean_tokens))
        even = replace(inputs, kernels=replace(inputs.kernels, expert_imbalance=1.0))
        needed = needed_flops(layer_operators(even)) + needed_flops(head_operators(even))
        if passes := self.job.method.frozen_forwards:
            frozen = self.job.frozen(even)
            operators = (*layer_operators(frozen), *head_operators(frozen))
            needed = needed + passes * forward_flops(operators)
        return as_array(self.layouts.grad_accum) * (needed / self.layouts.pp)

    @cached_property
    def recompute_flops(self) -> Array:
        """What runs a second time, at the lengths of the critical path."""
        if not np.any(self.layouts.recompute):
            return np.zeros(len(self.layouts))
        inputs = self.job.graph(self.layouts, as_array(self.sequences.critical_tokens))
        recomputed = recomputed_flops(layer_operators(inputs), self.layouts, inputs.kernels.selective)
        return as_array(self.layouts.grad_accum) * recomputed / self.layouts.pp

    def at(self, index: int) -> Timeline:
        """The timeline of one of the layouts."""
        chosen = slice(index, index + 1)
        parts = {name: seconds[chosen] for name, seconds in self.components.items()}
        return Timeline(self.job, self.layouts[chosen], parts, self.slowest[chosen])


@frozen
class _Groups:
    """The ranks over which data parallelism exchanges dense weights, and those that hold the same experts.

    `*_per_node` is how many of a group share a node; the ranks of an expert group lie between its replicas. With
    hybrid sharding these are the groups that share one copy; `replicas` copies add up their gradients.
    """

    ranks: Array
    per_node: Array
    expert_ranks: Array
    experts_per_node: Array
    replicas: Array
    replicas_per_node: Array

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> _Groups:
        node, ranks, replicas = job.network.node_ranks, as_array(layouts.zero_ranks), as_array(layouts.zero_replicas)
        experts = as_array(layouts.expert_zero_ranks)
        spread = layouts.expert_tp * layouts.ep
        return cls(
            ranks,
            np.clip(node // layouts.tp, 1, ranks),
            experts,
            np.clip(node // spread, 1, experts),
            replicas,
            np.clip(node // (layouts.tp * ranks), 1, replicas),
        )

    def time_s(self, job: Job, operation: str, dense_bytes: Array, expert_bytes: Array) -> Array:
        """Time of one exchange [s]; experts go with the rest where all ranks hold the same ones, else apart."""
        apart = np.where(self.expert_ranks != self.ranks, expert_bytes, 0.0)
        together = dense_bytes + expert_bytes - apart
        seconds = collective_time_s(operation, together, self.ranks, self.per_node, job.network)
        if np.any(apart > 0):
            seconds = seconds + collective_time_s(
                operation, apart, self.expert_ranks, self.experts_per_node, job.network
            )
        if operation == REDUCE_SCATTER and np.any(self.replicas > 1):
            shard = together / self.ranks + apart / self.expert_ranks
            seconds = seconds + collective_time_s(ALL_REDUCE, shard, self.replicas, self.replicas_per_node, job.network)
        return np.asarray(seconds / job.stack.efficiency.collectives)


def _once_a_step(job: Job, layouts: Layouts, held: Census, stage: StageTime, groups: _Groups) -> Array:
    """Exposed gradient reduction and weight gathering of ZeRO 0 to 2 [s].

    ZeRO 0 all-reduces gradients; 1 and 2 reduce-scatter them and gather the updated weights. All of it happens once
    a step, or in every micro-batch where the stack does so; the backward of one micro-batch can hide a share.
    """
    sizes, base = StateBytes.of(job), float(job.method.learning.base)
    experts = held.experts.max(axis=0) * base
    dense = (held.base * base + held.adapters).max(axis=0) - experts

    def exchange_s(operation: str, element_bytes: float) -> Array:
        return groups.time_s(job, operation, dense * element_bytes, experts * element_bytes)

    sharded = layouts.zero >= 1
    operation_s = np.where(sharded, exchange_s(REDUCE_SCATTER, sizes.reduce), exchange_s(ALL_REDUCE, sizes.reduce))
    repeats = np.where((layouts.zero == 2) & job.stack.defaults.reduces_every_micro_batch, layouts.grad_accum, 1)
    gather_s = np.where(sharded, exchange_s(ALL_GATHER, sizes.gather), 0.0)
    share = job.stack.overlap.data_parallel
    hidden_reduce = np.minimum(operation_s * share, stage.backward_s.max(axis=0))
    hidden_gather = np.minimum(gather_s * share, stage.forward_s.max(axis=0))
    return np.asarray(repeats * (operation_s - hidden_reduce) + gather_s - hidden_gather)


def _every_micro_batch(job: Job, layouts: Layouts, held: Census, stage: StageTime, groups: _Groups) -> Array:
    """Exposed gathers and reductions of ZeRO-3 and FSDP [s].

    Every layer's weights are gathered in the forward and in the backward, its gradients reduce-scattered. A layer
    takes the larger of compute and exchange; the first gather of each direction has nothing to hide behind.
    """
    sizes, base = StateBytes.of(job), float(job.method.learning.base)
    layers = layers_per_stage(job.model, layouts)
    size = (job.method.frozen_linear_bytes or 0.0) if job.method.quantised else sizes.gather
    layer, experts, root = (part.max(axis=0) for part in (held.mean_layer, held.mean_experts, held.root))
    layer_gather_s = groups.time_s(job, ALL_GATHER, layer * size, experts * size)
    root_gather_s = groups.time_s(job, ALL_GATHER, root * sizes.gather, np.zeros_like(root))
    learning = layer * base + held.adapters.max(axis=0) / layers
    reduce = sizes.reduce
    layer_reduce_s = groups.time_s(job, REDUCE_SCATTER, learning * reduce, experts * base * reduce)
    shard_bytes = held.base.max(axis=0) * sizes.gather / groups.ranks
    offloaded = layouts.offload == OFFLOAD.index("params")
    fetch_s = np.where(offloaded, copy_time_s(shard_bytes, job.server.pcie_bytes_per_s), 0.0)
    gather_s = np.maximum(layers * layer_gather_s, fetch_s)
    first_gather_s = np.maximum(layers * layer_gather_s + root_gather_s, fetch_s)
    reduce_s = np.maximum(layers * (layer_gather_s + layer_reduce_s), fetch_s)

    def exposed_s(exchange_s: Array, compute_s: Array) -> Array:
        share = job.stack.overlap.sharding
        first = exchange_s / layers if share < 1.0 else 0.0  # nothing runs yet that could hide it
        return np.asarray(np.maximum(first, exchange_s - share * compute_s.max(axis=0)))

    micro_batches = as_array(layouts.grad_accum)
    reduced = micro_batches if job.stack.defaults.reduces_every_micro_batch else np.ones_like(micro_batches)
    passes = 2.0 + (layouts.recompute == RECOMPUTE.index("full"))
    units_s = adapter_factors(job.model, job.method) / as_array(layouts.pp) * passes * job.stack.sharded_adapter_s
    return np.asarray(
        micro_batches * (units_s + exposed_s(first_gather_s, stage.forward_s))
        + micro_batches * job.method.frozen_forwards * exposed_s(first_gather_s, stage.frozen_s)
        + (micro_batches - reduced) * exposed_s(gather_s, stage.backward_s)
        + reduced * exposed_s(reduce_s, stage.backward_s)
    )


def _learning_per_rank(job: Job, layouts: Layouts, held: Census) -> Array:
    """Learning elements that a rank updates, shape (stage, layout) [-].

    Experts are sharded over the ranks that hold the same ones.
    """
    base, sharded = float(job.method.learning.base), layouts.zero >= 1
    dense = ((held.linear + held.other) * base + held.adapters) / np.where(sharded, layouts.zero_ranks, 1)
    experts = held.experts * base / np.where(sharded, layouts.expert_zero_ranks, 1)
    return np.asarray(dense + experts)


@frozen
class Step:
    """What the parts of a step are computed from; each of these once."""

    job: Job
    layouts: Layouts
    sequences: Sequences

    @cached_property
    def shapes(self) -> RankShapes:
        """At the lengths of the critical path: ranks wait for the longest sequence among them."""
        return self.job.rank_shapes(self.layouts, as_array(self.sequences.critical_tokens))

    @cached_property
    def stage(self) -> StageTime:
        return stage_time(self.job, self.layouts, self.shapes)

    @cached_property
    def held(self) -> Census:
        return census(self.job.model, self.job.method, self.layouts)

    @cached_property
    def schedule(self) -> Pipeline:
        return pipeline(self.job, self.layouts, self.shapes, self.stage.total_s, self.stage.weight_s)

    @cached_property
    def slowest(self) -> IntArray:
        return np.asarray(np.argmax(self.stage.total_s, axis=0))

    @cached_property
    def sizes(self) -> StateBytes:
        return StateBytes.of(self.job)

    @cached_property
    def updated_on_stages(self) -> Array:
        """Learning elements that a rank updates, shape (stage, layout) [-]."""
        return _learning_per_rank(self.job, self.layouts, self.held)

    @cached_property
    def updated(self) -> Array:
        """The same on the stage that has most of them, shape (layout,) [-]."""
        return np.asarray(self.updated_on_stages.max(axis=0))

    @cached_property
    def further_state_bytes(self) -> Array:
        """Moments of vectors and tables beyond those of matrices, shape (stage, layout) [bytes]."""
        held, base = self.held, float(self.job.method.learning.base)
        whole = held.vectors * self.sizes.vector_more + held.tables * self.sizes.embedding_more
        return base * whole / Shards.of(self.layouts).optimizer

    @cached_property
    def offloaded(self) -> NDArray[np.bool_]:
        """Where the host updates the weights."""
        return self.layouts.offload >= OFFLOAD.index("optimizer")


def _of_all_micro_batches(stage_part: Part[MicroBatch]) -> Part[Step]:
    """What one part of its micro-batches adds to a step, on the slowest stage."""

    def of_step(step: Step) -> Array:
        columns = np.arange(len(step.layouts))
        return as_array(step.layouts.grad_accum) * step.stage.parts[stage_part.name][step.slowest, columns]

    return Part(stage_part.name, stage_part.formula, stage_part.source, of_step)


@part(
    "pipeline bubble",
    "(sum of the other stages' times, less deferred weight gradients) / vpp",
    "arXiv:2104.04473, 2401.10241",
)
def bubble(step: Step) -> Array:
    return step.schedule.bubble_s


@part(
    "pipeline transfers",
    "2 vpp sends of a boundary tensor per micro-batch, vpp for a frozen forward",
    "collective laws",
)
def transfers(step: Step) -> Array:
    return step.schedule.transfer_s


@part(
    "data-parallel communication",
    "gradients and sharded weights, less what compute hides",
    "collective laws; ZeRO, FSDP",
)
def data_parallel(step: Step) -> Array:
    """Each rule is evaluated only where some layout needs it."""
    job, layouts, held, stage = step.job, step.layouts, step.held, step.stage
    groups = _Groups.of(job, layouts)
    exposed = np.zeros(len(layouts))
    gathers, several = layouts.zero == 3, layouts.data_ranks > 1
    fetches = gathers & (layouts.offload == OFFLOAD.index("params"))
    if np.any((gathers & several) | fetches):
        exposed = np.where(gathers, _every_micro_batch(job, layouts, held, stage, groups), exposed)
    if np.any(~gathers & several):
        exposed = np.where(gathers, exposed, _once_a_step(job, layouts, held, stage, groups))
    return np.where(several | fetches, exposed, 0.0)


@part(
    "optimizer",
    "states read and written once / memory bandwidth, and clipping",
    "stack; accelerator profile",
)
def optimizer(step: Step) -> Array:
    sizes, device = step.sizes, step.job.device
    passes = MULTI_TENSOR_FACTOR if step.job.stack.memory.optimizer_transient == "multi-tensor" else 1.0
    moved = passes * (sizes.gradient + sizes.weight + 2.0 * sizes.optimizer + CLIP_BYTES)
    moved_bytes = step.updated_on_stages * moved + passes * 2.0 * step.further_state_bytes
    on_card_s = moved_bytes.max(axis=0) / (device.memory_bound_efficiency * device.bandwidth_bytes_per_s)
    return np.where(step.offloaded, 0.0, on_card_s)


@part(
    "orthogonalisation",
    "Newton-Schulz iterations of 3 products for each matrix of the layers, whole ones gathered",
    "optimizer; operator and collective laws",
)
def orthogonalisation(step: Step) -> Array:
    return orthogonalisation_time_s(step.job, step.layouts)


@part("offload", "copies over PCIe and the CPU's optimizer", "ZeRO-Offload, arXiv:2101.06840")
def offload(step: Step) -> Array:
    sizes, server = step.sizes, step.job.server
    copies_s = copy_time_s(step.updated * (sizes.gather + sizes.reduce), server.pcie_bytes_per_s)
    ranks = np.minimum(step.layouts.gpus, server.accelerators)
    host_bytes = step.updated * ranks * step.job.optimizer.host_bytes
    cpu_s = host_bytes / (step.job.stack.host.cpu_adam_gb_per_s_per_node * 1e9)
    return np.where(step.offloaded, copies_s + cpu_s, 0.0)


@part("step overhead", "logging, data loading, synchronisation once a step", "stack")
def overhead(step: Step) -> Array:
    return np.full(len(step.layouts), step.job.stack.step_overhead_s)


STEP_PARTS = (
    *map(_of_all_micro_batches, MICRO_BATCH_PARTS),
    bubble,
    transfers,
    data_parallel,
    optimizer,
    orthogonalisation,
    offload,
    overhead,
)


def timeline(job: Job, layouts: Layouts, sequences: Sequences | None = None) -> Timeline:
    """One optimizer step under each layout.

        step = grad_accum x slowest stage + pipeline bubble + transfers + exposed data-parallel exchange + optimizer
               + orthogonalisation + offload + overhead

    Lengths are those of the critical path.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    sequences : what padding makes of the data under each layout, where that is known already

    Returns
    -------
    Timeline, shape (layout,), seconds [s]

    Source: each part of STEP_PARTS names its own.
    """
    lengths = sequences or job.sequences(layouts)
    step = Step(job, layouts, lengths)
    return Timeline(job, layouts, computed(STEP_PARTS, step), step.slowest, lengths)
