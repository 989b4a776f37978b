"""Seconds of one optimizer step: operators of each stage, exchanges, the pipeline, and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.inputs import GENERATOR
from xe_sizer.graph.operators import Array, Collective, as_array
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.graph.vision import VISION
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, REDUCE_SCATTER, collective_time_s, copy_time_s
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import NETWORK, OperatorCost, operator_sizes, operator_work
from xe_sizer.laws.parts import Part, computed, part
from xe_sizer.training.activations import activations, forward_flops, needed_flops, offloaded_layers, recomputed_flops
from xe_sizer.training.communication import (
    exchange_every_micro_batch,
    exchange_once_a_step,
    pipeline_bubble_s,
    pipeline_transfer_s,
    weight_fetch_s,
)
from xe_sizer.training.evaluation import (
    EXCHANGE_PARTS,
    MICRO_BATCH_PARTS,
    Evaluation,
    backward,
    forward,
    frozen_forward,
    recompute,
)
from xe_sizer.training.layout import SELECTIVE, Passes
from xe_sizer.training.model_states import swap_s
from xe_sizer.training.optimizer_step import matrix_work_time_s
from xe_sizer.training.rank import queries_and_candidates

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray, Operator
    from xe_sizer.laws.operator_time import OperatorWork
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.padding import Sequences

# Kernels of one micro-batch by module of the model.


def module_time(evaluation: Evaluation, slowest: IntArray) -> dict[str, tuple[Array, Array]]:
    """Kernels of one micro-batch by module of the model.

    What is recomputed counts as backward, passes through frozen weights as forward.

        t = sum over the operators of a module of the share of the layers on the stage x law

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    slowest : the stage of each layout (0 first, 1 last, 2 middle), shape (layout,) [-]

    Returns
    -------
    dict of module -> (forward, backward), shape (layout,), seconds [s]

    Source: operator laws of the accelerator's profile.
    """
    shapes, layouts, columns = evaluation.critical_shapes, evaluation.layouts, np.arange(len(slowest))
    shares = [of_stages[slowest, columns] for of_stages in evaluation.stage_shares]
    none = np.zeros(len(layouts))
    modes = [(evaluation.recomputed, layouts.recompute == SELECTIVE), (none, none), (none, none)]
    modules: dict[str, tuple[Array, Array]] = {}
    for module, frozen_s in _frozen_modules(evaluation, slowest):
        forward, backward = modules.get(module, (np.zeros_like(frozen_s), np.zeros_like(frozen_s)))
        modules[module] = (forward + frozen_s, backward)
    for on_stage, times, (all_again, some_again) in zip(shares, evaluation.times, modes, strict=True):
        for time in times:
            forward, backward = modules.get(time.operator.module, (none, none))
            again = all_again + some_again * time.operator.again
            there, back = shapes.broadcast(time.forward_s), shapes.broadcast(time.backward_s)
            modules[time.operator.module] = (forward + on_stage * there, backward + on_stage * (back + again * there))
    for module, one in ((VISION, evaluation.encoder), (GENERATOR, evaluation.generator)):
        if one is not None:
            backward = one.kernels_s[1][0] + one.recompute_s[0]
            modules[module] = (shares[1] * one.kernels_s[0][0], shares[1] * backward)
    return modules


def _frozen_modules(evaluation: Evaluation, slowest: IntArray) -> Iterator[tuple[str, Array]]:
    """Module and time of each operator of the passes through frozen weights, shape (layout,) [s]."""
    columns = np.arange(len(slowest))
    for companion, other in evaluation.passing:
        for of_stages, times in zip(other.stage_shares, other.times, strict=True):
            on_stage = of_stages[slowest, columns]
            for time in times:
                seconds = other.critical_shapes.broadcast(time.forward_s)
                yield time.operator.module, companion.forwards * on_stage * seconds


# A step operator by operator: what each kernel and each exchange takes of it, on the stage that decides.


class _Passes(Immutable):
    """One group of operators on the slowest stage: layers, embedding or head.

    share : of the group that the stage runs; mode : what is recomputed of it; whole : share of it that runs again as a
    whole; backward : whether gradients are computed
    """

    evaluation: Evaluation
    operators: tuple[Operator, ...]
    share: float
    mode: int
    whole: float
    backward: bool = True

    def one(self, value: Array) -> float:
        """A figure of one layout."""
        return float(self.evaluation.critical_shapes.broadcast(np.atleast_1d(value))[0])

    def again(self, operator: Operator) -> float:
        """How much of the forward runs once more."""
        return self.whole + float(self.mode == SELECTIVE) * operator.again


def operator_costs(line: Timeline) -> tuple[OperatorCost, ...]:
    """Every operator of the layers, the embedding and the head, on the slowest stage, and what it takes of a step.

        seconds = micro-batches x share of the layers on the stage x (forward + backward + recomputed forward)

    Exchanges count as far as the stack does not hide them. The seconds of all operators sum to the parts `forward`,
    `backward`, `recompute` and those of exchanges; a frozen forward also waits for its launches.

    Parameters
    ----------
    line : of one layout

    Returns
    -------
    tuple of OperatorCost, in the order in which they run [s], [FLOP], [bytes]

    Source: `laws.operator_time.operator_work` and `laws.network.exchange_times`.
    """
    evaluation, stage = line.evaluation, int(line.slowest[0])
    accum = float(evaluation.layouts.grad_accum[0])
    costs = [_scaled(cost, accum) for group in _groups(evaluation, stage) for cost in _of_group(group)]
    for companion, other in evaluation.passing:
        for group in _groups(other, stage):
            forwards = replace(group, mode=0, whole=0.0, backward=False)
            for cost in _of_group(forwards):
                times = companion.forwards * accum
                parts = {frozen_forward.name: times * sum(cost.parts.values())}
                costs.append(replace(_scaled(cost, times), parts=parts))
    return tuple(costs)


def _groups(evaluation: Evaluation, stage: int) -> Iterator[_Passes]:
    """Embedding, layers and head, as far as the stage has them."""
    (on_layers, on_embedding, on_head), (layers, embedding, head) = evaluation.stage_shares, evaluation.operators
    mode, whole = int(evaluation.layouts.recompute[0]), float(evaluation.recomputed[0])
    for share, operators, again, all_again in (
        (on_embedding, embedding, 0, 0.0),
        (on_layers, layers, mode, whole),
        (on_head, head, 0, 0.0),
    ):
        on_stage = float(share[stage, 0])
        if on_stage:
            yield _Passes(evaluation, operators, on_stage, again, all_again)


def _of_group(group: _Passes) -> Iterator[OperatorCost]:
    """Of one micro-batch."""
    device = group.evaluation.job.device
    works = {id(work.operator): work for work in operator_work(group.operators, device, group.backward)}
    for operator in group.operators:
        if isinstance(operator, Collective):
            yield _exchange(group, operator)
        else:
            yield _kernel(group, works[id(operator)])


def _kernel(group: _Passes, work: OperatorWork) -> OperatorCost:
    again, share = group.again(work.operator), group.share
    there, back = (group.one(side) for side in work.seconds)
    parts = {forward.name: share * there, backward.name: share * back, recompute.name: share * again * there}
    flops, moved = ((group.one(sides[0]), group.one(sides[1])) for sides in (work.flops, work.moved_bytes))
    return OperatorCost(
        operator=work.operator,
        sizes=_sizes(group, work.operator),
        times=share * work.operator.layers,
        flops=share * ((1.0 + again) * flops[0] + flops[1]),
        moved_bytes=share * ((1.0 + again) * moved[0] + moved[1]),
        parts={name: seconds for name, seconds in parts.items() if seconds},
        bound=max(work.bounds_s, key=lambda name: group.one(work.bounds_s[name])),
    )


def _exchange(group: _Passes, operator: Collective) -> OperatorCost:
    """An exchange, as far as the stack does not hide it; a rank alone sends nothing."""
    job, inputs = group.evaluation.job, group.evaluation.critical_shapes.inputs
    factor = job.stack.efficiency.collectives
    times = exchange_times((operator,), inputs.rank, job.network, factor, group.backward)
    there, back = (group.one(side) for side in times[operator.group])
    exposed, exposed_back = (group.one(share) for share in group.evaluation.exposed[operator.group])
    again = group.again(operator)
    seconds = group.share * ((1.0 + again) * exposed * there + exposed_back * back)
    sent = (operator.forward, operator.backward if group.backward else ())
    messages = [sum(group.one(size) for _, size in side) for side in sent]
    return OperatorCost(
        operator=operator,
        sizes=_sizes(group, operator),
        times=group.share * operator.layers,
        flops=0.0,
        moved_bytes=group.share * operator.layers * ((1.0 + again) * messages[0] + messages[1]),
        parts={EXCHANGE_PARTS[operator.group].name: seconds} if seconds else {},
        bound=NETWORK,
    )


def _sizes(group: _Passes, operator: Operator) -> dict[str, float]:
    return {name: group.one(size) for name, size in operator_sizes(operator).items()}


def _scaled(cost: OperatorCost, factor: float) -> OperatorCost:
    """The same so many times."""
    parts = {name: factor * seconds for name, seconds in cost.parts.items()}
    return replace(
        cost,
        times=factor * cost.times,
        flops=factor * cost.flops,
        moved_bytes=factor * cost.moved_bytes,
        parts=parts,
    )


# Jobs that compare the states of sequences with each other: how many, and what ranks exchange for it.


@part(
    "gathered states",
    "all-gather of the states that queries are compared with, and reduce-scatter of their gradients",
    "collective laws; sentence-transformers",
)
def gathered_states(evaluation: Evaluation) -> Array:
    """None where every GPU compares its own sequences alone."""
    job, layouts, compared = evaluation.job, evaluation.layouts, evaluation.job.method.compared
    if compared is None or not compared.across_gpus:
        return np.zeros(len(layouts))
    _, candidates = queries_and_candidates(compared, layouts)
    message = candidates * job.model.hidden * job.element_bytes
    ranks = as_array(layouts.dp)
    per_node = np.clip(job.network.node_ranks // (layouts.tp * layouts.cp), 1, ranks)
    both_s = sum(
        collective_time_s(operation, message, ranks, per_node, job.network)
        for operation in (ALL_GATHER, REDUCE_SCATTER)
    )
    times = np.ones(len(layouts)) if compared.cached else as_array(layouts.grad_accum)
    return np.where(ranks > 1, times * both_s / job.stack.efficiency.collectives, 0.0)


# The timeline of one optimizer step: micro-batches, pipeline, data parallelism, optimizer.

# Counted: bytes per element of a fused Adam step: gradient read, weight written (16 bit), master and two moments read
# and written; clipping reads the gradient once more and scales it. Multi-tensor updates run as separate kernels that
# move about twice as much (torch.optim foreach implementation).
CLIP_BYTES = 12.0
MULTI_TENSOR_FACTOR = 2.0
KeepsLimits = Callable[["Layouts", Array], NDArray[np.bool_]]  # of layouts and times of a step [s]


class Timeline(Immutable):
    """One optimizer step under each layout, shape (layout,).

    components : name -> seconds; they sum to `step_s`
    slowest : the stage that decides (0 first, 1 last, 2 middle)
    modules : module -> (forward, backward) seconds on the slowest stage
    flops, recompute_flops : of one GPU on average [FLOP]
    Modules and FLOPs are counted when asked for, as a search never asks.
    """

    evaluation: Evaluation
    components: dict[str, Array]
    slowest: IntArray

    @property
    def layouts(self) -> Layouts:
        return self.evaluation.layouts

    @property
    def sequences(self) -> Sequences:
        """What padding makes of the data under each layout."""
        return self.evaluation.sequences

    @property
    def step_s(self) -> Array:
        return np.asarray(sum(self.components.values()))

    @cached_property
    def modules(self) -> dict[str, tuple[Array, Array]]:
        """Kernels of all micro-batches by module."""
        accum = as_array(self.layouts.grad_accum)
        one = module_time(self.evaluation, self.slowest)
        return {name: (accum * forward, accum * backward) for name, (forward, backward) in one.items()}

    @cached_property
    def flops(self) -> Array:
        """What an average micro-batch needs: mean lengths, experts evenly used."""
        of = self.evaluation
        needed = _average_flops(of, needed_flops) + encoder_flops(of.encoder, self.layouts)
        if of.generator is not None:
            needed = needed + _average_flops(of.generator, needed_flops)
        for one, other in of.passing:
            needed = needed + one.forwards * _average_flops(other, forward_flops)
        return as_array(self.layouts.grad_accum) * (needed / self.layouts.pp)

    @cached_property
    def recompute_flops(self) -> Array:
        """What runs a second time, at the lengths of the critical path."""
        if not np.any(self.layouts.recompute):
            return np.zeros(len(self.layouts))
        of, shapes = self.evaluation, self.evaluation.critical_shapes
        again = recomputed_flops(of.operators[0], shapes, of.layouts, of.recomputed)
        return as_array(self.layouts.grad_accum) * again / self.layouts.pp

    def at(self, index: int) -> Timeline:
        """The timeline of one of the layouts."""
        chosen = slice(index, index + 1)
        parts = {name: seconds[chosen] for name, seconds in self.components.items()}
        return Timeline(self.evaluation[chosen], parts, self.slowest[chosen])


def _average_flops(evaluation: Evaluation, count: Callable[[Iterable[Operator]], Array]) -> Array:
    """FLOPs of layers and head for an average micro-batch: mean lengths, experts evenly used; shape (layout,) [FLOP]"""
    shapes = evaluation.mean_shapes
    if evaluation.job.model.experts is None:
        return shapes.broadcast(count((*shapes.graph.layers, *shapes.graph.head)))
    kernels = replace(shapes.inputs.kernels, expert_imbalance=1.0, expert_spread=0.0, pads_experts=False)
    even = replace(shapes.inputs, kernels=kernels)
    return shapes.broadcast(count((*layer_operators(even), *head_operators(even))))


def encoder_flops(encoder: Evaluation | None, layouts: Layouts) -> Array:
    """FLOPs of the images of one micro-batch: forward, and backward of what learns or passes gradients on.

        F = forward + backward where it runs      of the encoder's layers, of the patches, of the projector

    Parameters
    ----------
    encoder : of the images, None where samples have none
    layouts : of the whole job, shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,) [FLOP], 0 where samples have no images

    Source: model FLOPs as in PaLM (arXiv:2204.02311, appendix B), for what training needs.
    """
    total = np.zeros(len(layouts))
    if encoder is None:
        return total
    shapes = encoder.critical_shapes
    for operators, runs in zip(encoder.operators, encoder.runs_back, strict=True):
        forward, every_pass = (shapes.broadcast(count(operators)) for count in (forward_flops, needed_flops))
        total = total + forward + runs * (every_pass - forward)
    return total


def _of_all_micro_batches(stage_part: Part[Evaluation]) -> Part[Evaluation]:
    """What one part of its micro-batches adds to a step, on the slowest stage."""

    def of_step(evaluation: Evaluation) -> Array:
        columns = np.arange(len(evaluation.layouts))
        return (
            as_array(evaluation.layouts.grad_accum) * evaluation.parts_s[stage_part.name][evaluation.slowest, columns]
        )

    return Part(stage_part.name, stage_part.formula, stage_part.source, of_step)


@part(
    "pipeline bubble",
    "sum over the other stages of what the schedule leaves of forward, backward and weight gradients / vpp",
    "arXiv:2104.04473, 2401.10241, 2405.15362",
)
def bubble(evaluation: Evaluation) -> Array:
    forward_s, weight_s = evaluation.forward_s, evaluation.weight_s
    return pipeline_bubble_s(evaluation, Passes(forward_s, evaluation.stage_s - forward_s - weight_s, weight_s))


@part(
    "pipeline transfers",
    "2 vpp sends of a boundary tensor per micro-batch, twice that where they are not paired, vpp for a frozen forward",
    "collective laws",
)
def transfers(evaluation: Evaluation) -> Array:
    return pipeline_transfer_s(evaluation)


@part(
    "data-parallel communication",
    "gradients and sharded weights, less what compute hides",
    "collective laws; ZeRO, FSDP",
)
def data_parallel(evaluation: Evaluation) -> Array:
    """Nothing on a single rank; each rule is evaluated only where some layout needs it."""
    layouts, several = evaluation.layouts, evaluation.layouts.data_ranks > 1
    gathers = layouts.gathers_by_layer
    exposed = np.zeros(len(layouts))
    if np.any(gathers & several):
        exposed = np.where(gathers, exchange_every_micro_batch(evaluation, np.zeros(len(layouts))), exposed)
    if np.any(~gathers & several):
        once = exchange_once_a_step(evaluation)
        exposed = np.where(gathers, exposed, once)
    return np.where(several, exposed, 0.0)


@part(
    "transfers to and from host memory",
    "what copies of offloaded weights and activations over PCIe take beyond what compute hides; swaps of frozen copies",
    "ZeRO-Infinity, arXiv:2104.07857; ALST, arXiv:2506.13996",
)
def host_transfers(evaluation: Evaluation) -> Array:
    swapped_s = swap_s(evaluation.job, evaluation.copies_bytes)
    return _fetched_weights_s(evaluation) + _offloaded_activations_s(evaluation) + swapped_s


def _offloaded_activations_s(evaluation: Evaluation) -> Array:
    """Activations go to the host in the forward and come back in the backward, beside the kernels, shape (layout,) [s].

    t = grad_accum sum over both passes of max(kept bytes / PCIe rate - share hidden x pass, 0)
    """
    job, layouts = evaluation.job, evaluation.layouts
    if not np.any(layouts.hosts_activations) and job.kernels.hosted is None:
        return np.zeros(len(layouts))
    saved = activations(evaluation.critical_shapes, layouts, *evaluation.fresh_gradients, evaluation.recomputed)
    layers = offloaded_layers(job, layouts, evaluation.stages.fullest)
    copied = saved.kept * layers + saved.hosted * evaluation.stages.fullest
    copy_s = copy_time_s(copied, job.server.pcie_bytes_per_s)
    share = job.stack.overlap.sharding
    exposed_s = sum(
        np.maximum(copy_s - share * busy_s, 0.0) for busy_s in (evaluation.forward_s, evaluation.backward_s)
    )
    return np.asarray(as_array(layouts.grad_accum) * np.max(exposed_s, axis=0))


def _fetched_weights_s(evaluation: Evaluation) -> Array:
    """With weights in host memory an exchange takes no less than their copy; on one rank there is the copy alone."""
    layouts = evaluation.layouts
    fetches = layouts.gathers_by_layer & layouts.hosts_params
    if not np.any(fetches):
        return np.zeros(len(layouts))
    both_s = exchange_every_micro_batch(evaluation, weight_fetch_s(evaluation))
    between_ranks_s = np.where(
        layouts.data_ranks > 1, exchange_every_micro_batch(evaluation, np.zeros(len(layouts))), 0.0
    )
    return np.where(fetches, both_s - between_ranks_s, 0.0)


@part(
    "optimizer",
    "states read and written once / memory bandwidth, and clipping",
    "stack; accelerator profile",
)
def optimizer(evaluation: Evaluation) -> Array:
    sizes, device, own = evaluation.sizes, evaluation.job.device, evaluation.job.optimizer
    in_one = own.in_one_kernel or own.temporaries is not None
    several = own.transient(evaluation.job.stack.memory.optimizer_transient) == "multi-tensor" and not in_one
    passes = MULTI_TENSOR_FACTOR if several else 1.0
    eager = own.temporaries.passes * sizes.weight if own.temporaries else 0.0
    moved = passes * (sizes.gradient + sizes.weight + 2.0 * sizes.optimizer + CLIP_BYTES) + eager
    moved_bytes = evaluation.updated * moved + passes * 2.0 * evaluation.further_state_bytes
    on_card_s = moved_bytes.max(axis=0) / (device.memory_bound_efficiency * device.bandwidth_bytes_per_s)
    return np.asarray(evaluation.job.optimizer_on_card(evaluation.layouts) * on_card_s)


@part(
    "matrix work of the optimizer",
    "Newton-Schulz products, projections or preconditioners of each matrix of the layers, whole ones gathered; "
    "decompositions / steps between two",
    "optimizer; operator and collective laws",
)
def matrix_work(evaluation: Evaluation) -> Array:
    return matrix_work_time_s(evaluation.job, evaluation.layouts, evaluation.stages)


def _paged_states_s(evaluation: Evaluation) -> Array:
    """States in unified memory go to the card and back in every step where they do not fit, shape (layout,) [s].

        t = 2 state bytes / PCIe rate      where weights, gradients and states exceed the card

    The driver gives up the pages that were used longest ago, and a step uses each of them once, so that none is still
    there when it is needed again.

    Source: bitsandbytes optim/optimizer.py (get_state_buffer, prefetch_state, is_paged).
    """
    job, sizes, held, base = evaluation.job, evaluation.sizes, evaluation.held, evaluation.base
    if not job.pages_states:
        return np.zeros(len(evaluation.layouts))
    gradient = 0.0 if job.stack.states.updates_in_backward else sizes.gradient
    kept = base * (sizes.weight + gradient) + (1.0 - base) * sizes.frozen_linear
    weights = ((held.linear + held.experts + held.other) * kept).max(axis=0) / evaluation.shards.weights
    states = evaluation.updated.max(axis=0) * sizes.optimizer
    exceeds = weights + states > job.server.accelerator.memory_bytes
    return np.where(exceeds, 2.0 * copy_time_s(states, job.server.pcie_bytes_per_s), 0.0)


@part(
    "offload",
    "copies over PCIe, of gradients that wait on the host in every micro-batch, and the CPU's optimizer; or pages of "
    "states that come and go",
    "ZeRO-Offload, arXiv:2101.06840; bitsandbytes",
)
def offload(evaluation: Evaluation) -> Array:
    sizes, server, updated = evaluation.sizes, evaluation.job.server, evaluation.updated.max(axis=0)
    copies_s = copy_time_s(updated * (sizes.gather + sizes.reduce), server.pcie_bytes_per_s)
    ranks = np.minimum(evaluation.layouts.gpus, server.accelerators)
    host_bytes = updated * ranks * evaluation.job.optimizer.host_bytes
    cpu_s = host_bytes / (evaluation.job.stack.host.cpu_adam_gb_per_s_per_node * 1e9)
    offloaded_s = evaluation.job.offload_fraction * (copies_s + cpu_s) + _accumulated_on_host_s(evaluation)
    return np.where(evaluation.layouts.hosts_optimizer, offloaded_s, _paged_states_s(evaluation))


def _accumulated_on_host_s(evaluation: Evaluation) -> Array:
    """Gradients in host memory come back, are added to and go again, beside the backward, shape (layout,) [s].

        t = (grad_accum - 1) max(2 gradient bytes / PCIe rate - share hidden x backward, 0)

    What the last micro-batch hands to the optimizer is counted with its copies.

    Source: DeepSpeed runtime/zero/stage_1_and_2.py (async_accumulate_grad_in_cpu_via_gpu) and stage3.py
    (partition_grads), which copy on the stream of the reductions; FSDP2 adds on the CPU, which takes as long.
    """
    job, layouts = evaluation.job, evaluation.layouts
    on_host = job.gradients_on_host(layouts)
    if not np.any(on_host):
        return np.zeros(len(layouts))
    both_ways_bytes = 2.0 * on_host * evaluation.updated.max(axis=0) * evaluation.sizes.gradient
    copies_s = copy_time_s(both_ways_bytes, job.server.pcie_bytes_per_s)
    exposed_s = np.maximum(copies_s - job.stack.overlap.sharding * evaluation.backward_s, 0.0)
    reduced = ~evaluation.accumulates_whole_gradients  # in every micro-batch; else they go to the host once a step
    return np.asarray(reduced * (layouts.grad_accum - 1.0) * exposed_s.max(axis=0))


@part("step overhead", "logging, data loading, synchronisation once per step", "stack")
def overhead(evaluation: Evaluation) -> Array:
    return np.full(len(evaluation.layouts), evaluation.job.stack.step_overhead_s)


STEP_PARTS = (
    *map(_of_all_micro_batches, MICRO_BATCH_PARTS),
    bubble,
    transfers,
    data_parallel,
    gathered_states,
    host_transfers,
    optimizer,
    matrix_work,
    offload,
    overhead,
)
OFFLOAD_PARTS = (host_transfers.name, offload.name)


def timeline(job: Job, layouts: Layouts, known: Sequences | None = None) -> Timeline:
    """One optimizer step under each layout; `known` is what padding makes of the data, where that is known already."""
    return timeline_of(Evaluation(job, layouts, known))


def timeline_of(evaluation: Evaluation) -> Timeline:
    """One optimizer step under each layout.

        step = grad_accum x slowest stage + pipeline bubble + transfers + exposed data-parallel exchange
               + exposed transfers to and from host memory + optimizer + its matrix work + offload + overhead

    Lengths are those of the critical path.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)

    Returns
    -------
    Timeline, shape (layout,), seconds [s]

    Source: each part of STEP_PARTS names its own.
    """
    return Timeline(evaluation, computed(STEP_PARTS, evaluation), evaluation.slowest)


# Time of passes without a backward: evaluation, log-probabilities, values and rewards of many sequences.

GATHERS_OF_A_STEP = 3.0  # counted: exchanges of sharded weights in a micro-batch: two gathers, and gradients reduced


def forward_pass_s(evaluation: Evaluation, sequences: ArrayLike) -> Array:
    """Time of the forward alone of so many sequences, in micro-batches of the training.

        micro-batches = ceil(sequences / (dp x micro-batch))
        t = (micro-batches + pp - 1) x forward of the slowest stage + micro-batches x gathers

    A pipeline fills and empties once. Sharded weights are gathered once for each micro-batch.

    Parameters
    ----------
    evaluation : of the job that learns, or of one that stands beside it; layouts of shape (layout,)
    sequences : of all replicas [-]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: operator and collective laws.
    """
    layouts = evaluation.layouts
    micro_batches = np.ceil(as_array(sequences) / (layouts.dp * layouts.micro_batch))
    forward_s = np.max(evaluation.forward_s + evaluation.frozen_s, axis=0)
    gathered_s, sharded = np.zeros(len(layouts)), (layouts.zero == 3) & (layouts.data_ranks > 1)
    if np.any(sharded):
        exchange_s = exchange_every_micro_batch(evaluation, np.zeros(len(layouts))) / as_array(layouts.grad_accum)
        gathered_s = np.where(sharded, exchange_s / GATHERS_OF_A_STEP, 0.0)
    return np.asarray((micro_batches + layouts.pp - 1.0) * forward_s + micro_batches * gathered_s)
