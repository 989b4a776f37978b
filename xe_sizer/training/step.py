"""The timeline of one optimizer step: micro-batches, pipeline, data parallelism, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Array, as_array
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.laws.collectives import copy_time_s
from xe_sizer.laws.parts import Part, computed, part
from xe_sizer.training.activations import activations
from xe_sizer.training.comparison import gathered_states
from xe_sizer.training.data_parallel import Groups, exchange_every_micro_batch, exchange_once_a_step, weight_fetch_s
from xe_sizer.training.encoder import encoder_flops
from xe_sizer.training.flops import forward_flops, needed_flops, recomputed_flops
from xe_sizer.training.frozen_weights import swap_s
from xe_sizer.training.generator import generator_flops
from xe_sizer.training.gradients import keeps_fresh_gradients
from xe_sizer.training.learning_layers import learning_elements
from xe_sizer.training.module_time import module_time
from xe_sizer.training.offloading import offloaded_layers
from xe_sizer.training.orthogonalisation import matrix_work_time_s
from xe_sizer.training.pipeline import pipeline
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.schedules import Passes
from xe_sizer.training.sharding import Shards, census
from xe_sizer.training.stage_time import MICRO_BATCH_PARTS, stage_time
from xe_sizer.training.stages import stages_of
from xe_sizer.training.state_bytes import StateBytes

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray, Operator
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.padding import Sequences
    from xe_sizer.training.pipeline import Pipeline
    from xe_sizer.training.sharding import Census
    from xe_sizer.training.stage_time import MicroBatch, StageTime

# Counted: bytes per element of a fused Adam step: gradient read, weight written (16 bit), master and two moments read
# and written; clipping reads the gradient once more and scales it. Multi-tensor updates run as separate kernels that
# move about twice as much (torch.optim foreach implementation).
CLIP_BYTES = 12.0
MULTI_TENSOR_FACTOR = 2.0

KeepsLimits = Callable[["Layouts", Array], NDArray[np.bool_]]  # of layouts and times of a step [s]


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
        needed = needed_flops(self._operators_of(self.job)) + encoder_flops(self.job, self.layouts)
        needed = needed + generator_flops(self.job, self.layouts, as_array(self.sequences.mean_tokens))
        for one in self.job.method.passing:
            needed = needed + one.forwards * forward_flops(self._operators_of(self.job.beside(one)))
        return as_array(self.layouts.grad_accum) * (needed / self.layouts.pp)

    def _operators_of(self, job: Job) -> tuple[Operator, ...]:
        """Layers and head of an average micro-batch."""
        inputs = job.graph(self.layouts, as_array(self.sequences.mean_tokens))
        even = replace(inputs, kernels=replace(inputs.kernels, expert_imbalance=1.0, expert_spread=0.0))
        return (*layer_operators(even), *head_operators(even))

    @cached_property
    def recompute_flops(self) -> Array:
        """What runs a second time, at the lengths of the critical path."""
        if not np.any(self.layouts.recompute):
            return np.zeros(len(self.layouts))
        inputs = self.job.graph(self.layouts, as_array(self.sequences.critical_tokens))
        share = recomputed_layers_share(self.job, self.layouts)
        recomputed = recomputed_flops(layer_operators(inputs), self.layouts, share)
        return as_array(self.layouts.grad_accum) * recomputed / self.layouts.pp

    def at(self, index: int) -> Timeline:
        """The timeline of one of the layouts."""
        chosen = slice(index, index + 1)
        parts = {name: seconds[chosen] for name, seconds in self.components.items()}
        return Timeline(self.job, self.layouts[chosen], parts, self.slowest[chosen])


def _learning_per_rank(job: Job, layouts: Layouts, held: Census) -> Array:
    """Learning elements that a rank updates, shape (stage, layout) [-].

    Experts are sharded over the ranks that hold the same ones.
    """
    sharded, (dense, experts) = layouts.zero >= 1, learning_elements(job, layouts, held)
    dense = (dense + held.adapters) / np.where(sharded, layouts.zero_ranks, 1)
    return np.asarray(dense + experts / np.where(sharded, layouts.expert_zero_ranks, 1))


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
        return census(self.job.model, self.job.method, self.layouts, self.job.split)

    @cached_property
    def groups(self) -> Groups:
        return Groups.of(self.job, self.layouts)

    def sharded_exchange_s(self, fetch_s: Array) -> Array:
        """Exposed exchanges of weights that every micro-batch gathers, shape (layout,) [s]."""
        return exchange_every_micro_batch(self.job, self.layouts, self.held, self.stage, self.groups, fetch_s)

    @cached_property
    def schedule(self) -> Pipeline:
        stage = self.stage
        backward_s = stage.total_s - stage.forward_s - stage.weight_s
        passes = Passes(stage.forward_s, backward_s, stage.weight_s)
        return pipeline(self.job, self.layouts, self.shapes, passes)

    @cached_property
    def slowest(self) -> IntArray:
        return np.asarray(np.argmax(self.stage.total_s, axis=0))

    @cached_property
    def sizes(self) -> StateBytes:
        return StateBytes.of(self.job, self.layouts)

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
        return base * self.job.learning_layers.share * whole / Shards.of(self.layouts).optimizer

    @cached_property
    def offloaded(self) -> NDArray[np.bool_]:
        """Where the host updates the weights."""
        return self.layouts.hosts_optimizer


def _of_all_micro_batches(stage_part: Part[MicroBatch]) -> Part[Step]:
    """What one part of its micro-batches adds to a step, on the slowest stage."""

    def of_step(step: Step) -> Array:
        columns = np.arange(len(step.layouts))
        return as_array(step.layouts.grad_accum) * step.stage.parts[stage_part.name][step.slowest, columns]

    return Part(stage_part.name, stage_part.formula, stage_part.source, of_step)


@part(
    "pipeline bubble",
    "sum over the other stages of what the schedule leaves of forward, backward and weight gradients / vpp",
    "arXiv:2104.04473, 2401.10241, 2405.15362",
)
def bubble(step: Step) -> Array:
    return step.schedule.bubble_s


@part(
    "pipeline transfers",
    "2 vpp sends of a boundary tensor per micro-batch, twice that where they are not paired, vpp for a frozen forward",
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
    """Nothing on a single rank; each rule is evaluated only where some layout needs it."""
    layouts, several = step.layouts, step.layouts.data_ranks > 1
    gathers = layouts.gathers_by_layer
    exposed = np.zeros(len(layouts))
    if np.any(gathers & several):
        exposed = np.where(gathers, step.sharded_exchange_s(np.zeros(len(layouts))), exposed)
    if np.any(~gathers & several):
        once = exchange_once_a_step(step.job, layouts, step.held, step.stage, step.groups)
        exposed = np.where(gathers, exposed, once)
    return np.where(several, exposed, 0.0)


@part(
    "transfers to and from host memory",
    "what copies of offloaded weights and activations over PCIe take beyond what compute hides; swaps of frozen copies",
    "ZeRO-Infinity, arXiv:2104.07857; ALST, arXiv:2506.13996",
)
def host_transfers(step: Step) -> Array:
    swapped_s = swap_s(step.job, step.layouts)
    return _fetched_weights_s(step) + _offloaded_activations_s(step) + swapped_s


def _offloaded_activations_s(step: Step) -> Array:
    """Activations go to the host in the forward and come back in the backward, beside the kernels, shape (layout,) [s].

    t = grad_accum sum over both passes of max(kept bytes / PCIe rate - share hidden x pass, 0)
    """
    job, layouts, stage = step.job, step.layouts, step.stage
    if not np.any(layouts.hosts_activations):
        return np.zeros(len(layouts))
    fresh = keeps_fresh_gradients(job, layouts)
    kept = activations(
        step.shapes, layouts, step.sizes.fresh_gradient, fresh, recomputed_layers_share(job, layouts)
    ).kept
    layers = offloaded_layers(job, layouts, stages_of(job.model.layers, job.split, layouts).fullest)
    copy_s = copy_time_s(kept * layers, job.server.pcie_bytes_per_s)
    share = job.stack.overlap.sharding
    exposed_s = sum(np.maximum(copy_s - share * busy_s, 0.0) for busy_s in (stage.forward_s, stage.backward_s))
    worst_s = as_array(layouts.grad_accum) * np.max(exposed_s, axis=0)
    return np.where(layouts.hosts_activations, worst_s, 0.0)


def _fetched_weights_s(step: Step) -> Array:
    """With weights in host memory an exchange takes no less than their copy; on one rank there is the copy alone."""
    job, layouts = step.job, step.layouts
    fetches = layouts.gathers_by_layer & layouts.hosts_params
    if not np.any(fetches):
        return np.zeros(len(layouts))
    both_s = step.sharded_exchange_s(weight_fetch_s(job, layouts, step.held, step.groups))
    between_ranks_s = np.where(layouts.data_ranks > 1, step.sharded_exchange_s(np.zeros(len(layouts))), 0.0)
    return np.where(fetches, both_s - between_ranks_s, 0.0)


@part(
    "optimizer",
    "states read and written once / memory bandwidth, and clipping",
    "stack; accelerator profile",
)
def optimizer(step: Step) -> Array:
    sizes, device, own = step.sizes, step.job.device, step.job.optimizer
    in_one = own.in_one_kernel or own.temporaries is not None
    several = own.transient(step.job.stack.memory.optimizer_transient) == "multi-tensor" and not in_one
    passes = MULTI_TENSOR_FACTOR if several else 1.0
    eager = own.temporaries.passes * sizes.weight if own.temporaries else 0.0
    moved = passes * (sizes.gradient + sizes.weight + 2.0 * sizes.optimizer + CLIP_BYTES) + eager
    moved_bytes = step.updated_on_stages * moved + passes * 2.0 * step.further_state_bytes
    on_card_s = moved_bytes.max(axis=0) / (device.memory_bound_efficiency * device.bandwidth_bytes_per_s)
    return np.asarray(step.job.optimizer_on_card(step.layouts) * on_card_s)


@part(
    "matrix work of the optimizer",
    "Newton-Schulz products, projections or preconditioners of each matrix of the layers, whole ones gathered; "
    "decompositions / steps between two",
    "optimizer; operator and collective laws",
)
def matrix_work(step: Step) -> Array:
    return matrix_work_time_s(step.job, step.layouts)


def _paged_states_s(step: Step) -> Array:
    """States in unified memory go to the card and back in every step where they do not fit, shape (layout,) [s].

        t = 2 state bytes / PCIe rate      where weights, gradients and states exceed the card

    The driver gives up the pages that were used longest ago, and a step uses each of them once, so that none is still
    there when it is needed again.

    Source: bitsandbytes optim/optimizer.py (get_state_buffer, prefetch_state, is_paged).
    """
    job, sizes, held = step.job, step.sizes, step.held
    if not job.optimizer.paged:
        return np.zeros(len(step.layouts))
    base = float(job.method.learning.base)
    gradient = 0.0 if job.stack.states.updates_in_backward else sizes.gradient
    kept = base * (sizes.weight + gradient) + (1.0 - base) * sizes.frozen_linear
    weights = ((held.linear + held.experts + held.other) * kept).max(axis=0) / Shards.of(step.layouts).weights
    states = step.updated * sizes.optimizer
    exceeds = weights + states > job.server.accelerator.memory_bytes
    return np.where(exceeds, 2.0 * copy_time_s(states, job.server.pcie_bytes_per_s), 0.0)


@part(
    "offload",
    "copies over PCIe and the CPU's optimizer, or pages of states that come and go",
    "ZeRO-Offload, arXiv:2101.06840; bitsandbytes",
)
def offload(step: Step) -> Array:
    sizes, server = step.sizes, step.job.server
    copies_s = copy_time_s(step.updated * (sizes.gather + sizes.reduce), server.pcie_bytes_per_s)
    ranks = np.minimum(step.layouts.gpus, server.accelerators)
    host_bytes = step.updated * ranks * step.job.optimizer.host_bytes
    cpu_s = host_bytes / (step.job.stack.host.cpu_adam_gb_per_s_per_node * 1e9)
    return np.where(step.offloaded, step.job.offload_fraction * (copies_s + cpu_s), _paged_states_s(step))


@part("step overhead", "logging, data loading, synchronisation once per step", "stack")
def overhead(step: Step) -> Array:
    return np.full(len(step.layouts), step.job.stack.step_overhead_s)


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


def timeline(job: Job, layouts: Layouts, sequences: Sequences | None = None) -> Timeline:
    """One optimizer step under each layout.

        step = grad_accum x slowest stage + pipeline bubble + transfers + exposed data-parallel exchange
               + exposed transfers to and from host memory + optimizer + its matrix work + offload + overhead

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
