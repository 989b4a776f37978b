"""Exchanges between ranks over a step: the data-parallel reduction and the pipeline's transfers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.inputs import head_adapters, model_adapters
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.weights import layer_weights
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    STOLEN,
    collective_time_s,
    copy_time_s,
    links_along_axes,
    stall_s,
)
from xe_sizer.training.layout import HAS_OTHER_WORK, bubble_time_s

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.collectives import Network
    from xe_sizer.training.evaluation import Evaluation
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts, Passes
    from xe_sizer.training.rank import RankShapes

# What data-parallel ranks exchange: gradients and weights, whole or sharded, and what compute does not hide of it.


class Groups(Immutable):
    """The ranks over which data parallelism exchanges dense weights, and those that hold the same experts.

    `*_per_node` is how many of a group share a node; the ranks of an expert group lie between its replicas. With
    hybrid sharding these are the groups that share one copy; `replicas` copies add up their gradients. `*links`: share
    of the links inside a node that the groups within a replica leave to a group.
    """

    ranks: Array
    per_node: Array
    expert_ranks: Array
    experts_per_node: Array
    replicas: Array
    replicas_per_node: Array
    links: Array
    expert_links: Array

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> Groups:
        node, ranks, replicas = job.network.node_ranks, as_array(layouts.zero_ranks), as_array(layouts.zero_replicas)
        experts = as_array(layouts.expert_zero_ranks)
        expert_copy_ranks = layouts.expert_ranks * layouts.ep
        return cls(
            ranks,
            np.clip(node // layouts.tp, 1, ranks),
            experts,
            np.clip(node // expert_copy_ranks, 1, experts),
            replicas,
            np.clip(node // (layouts.tp * ranks), 1, replicas),
            _links_left(layouts.tp, job.network),
            _links_left(expert_copy_ranks, job.network),
        )

    def time_s(self, job: Job, operation: str, dense_bytes: Array, expert_bytes: Array) -> Array:
        """Time of one exchange; experts go with the rest where all ranks hold the same ones, else apart.

            t = collective(dense + experts) / efficiency, or (collective(dense) + collective(experts)) / efficiency
            t += all-reduce of a shard over the replicas      hybrid sharding, where gradients are reduced

        Parameters
        ----------
        job : its network, and the factor that the stack reaches on the network's laws
        operation : all_reduce, reduce_scatter or all_gather
        dense_bytes, expert_bytes : whole messages, shape (layout,) [bytes]

        Returns
        -------
        ndarray of float, shape (layout,), seconds [s]

        Source: laws of collectives; hybrid sharding of PyTorch FSDP.
        """
        apart = np.where(self.expert_ranks != self.ranks, expert_bytes, 0.0)
        together = dense_bytes + expert_bytes - apart
        seconds = collective_time_s(operation, together, self.ranks, self.per_node, job.network, links=self.links)
        if np.any(apart):
            seconds = seconds + collective_time_s(
                operation, apart, self.expert_ranks, self.experts_per_node, job.network, links=self.expert_links
            )
        if operation == REDUCE_SCATTER and np.any(self.replicas != 1):
            shard = together / self.ranks + apart / self.expert_ranks
            seconds = seconds + collective_time_s(ALL_REDUCE, shard, self.replicas, self.replicas_per_node, job.network)
        return np.asarray(seconds / job.stack.efficiency.collectives)

    def stalls_s(self, network: Network) -> tuple[Array, Array]:
        """Of one exchange between the ranks of a group, and of one between its replicas [s]."""
        return stall_s(self.ranks / self.per_node, network), stall_s(self.replicas / self.replicas_per_node, network)


def _tensors(evaluation: Evaluation) -> Array:
    """Weights of the layers of the fullest stage, each of which is an exchange of its own, shape (layout,) [-]."""
    model = evaluation.job.model
    a_layer = sum(layers * len(layer_weights(model, kind)) for kind, layers in model.layer_kinds) / model.layers
    return np.asarray(evaluation.stages.fullest * a_layer)


def _links_left(inner: ArrayLike, network: Network) -> Array:
    """What groups of so many ranks leave of a node's links to each of those whose members lie between them."""
    used = links_along_axes(inner, network)
    left = np.where((as_array(inner) > network.chip_ranks) & (used < 1.0), 1.0 - used, 1.0)
    return np.asarray(left / np.minimum(inner, network.chip_ranks))


def _stolen(share: float) -> float:
    """Share of a hidden exchange's time that compute loses to it; nothing where exchanges are taken to cost nothing."""
    return STOLEN if share < 1.0 else 0.0


def exchange_once_a_step(evaluation: Evaluation) -> Array:
    """Exposed gradient reduction and weight gathering of ZeRO 0 to 2.

        t = repeats x (reduce - h(reduce, backward)) + gather - h(gather, forward) + exchanges x stall
        h(x, compute) = (1 - stolen) min(share x, compute)      stolen = 0.15; 0 where the share is 1

    ZeRO-3 in the stages of a pipeline gathers a stage once and keeps it for all micro-batches, as ZeRO-1 does (PyTorch
    FSDP2 without reshard_after_forward). ZeRO 0 all-reduces gradients; 1 and 2 reduce-scatter them, or all-reduce them
    where the stack does so, and gather the updated weights. All of it happens once a step, or the reduction
    in every micro-batch where the stack does so with ZeRO 2; one micro-batch can hide a share.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: ZeRO (arXiv:1910.02054); the hidden share stands in the stack's file.
    """
    job, layouts, sizes, held = evaluation.job, evaluation.layouts, evaluation.sizes, evaluation.held
    groups, (dense_of_stages, experts_of_stages) = Groups.of(job, layouts), evaluation.learning
    experts = experts_of_stages.max(axis=0)
    dense = (dense_of_stages + experts_of_stages + held.adapters).max(axis=0) - experts

    def exchange_s(operation: str, element_bytes: float) -> Array:
        return groups.time_s(job, operation, dense * element_bytes, experts * element_bytes)

    sharded, defaults = layouts.zero >= 1, job.stack.defaults
    scattered = sharded & ~(defaults.reduces_whole_gradients & (layouts.zero < 3))
    operation_s = np.where(scattered, exchange_s(REDUCE_SCATTER, sizes.reduce), exchange_s(ALL_REDUCE, sizes.reduce))
    repeats = np.where(
        (layouts.zero == 2) & (layouts.pp == 1) & defaults.reduces_every_micro_batch, layouts.grad_accum, 1
    )
    gather_s = np.where(sharded, exchange_s(ALL_GATHER, sizes.gather), 0.0)

    def exposed_s(exchange_s: Array, share: float, compute_s: Array) -> Array:
        hidden_s = np.minimum(exchange_s * share, compute_s.max(axis=0))
        return np.asarray(exchange_s - (1.0 - _stolen(share)) * hidden_s)

    overlap = job.stack.overlap
    reduced_s = repeats * exposed_s(operation_s, overlap.data_parallel, evaluation.backward_s)
    waited_s = (repeats + sharded) * _tensors(evaluation) * groups.stalls_s(job.network)[0]
    return np.asarray(reduced_s + exposed_s(gather_s, overlap.updated_weights, evaluation.forward_s) + waited_s)


def exchange_every_micro_batch(evaluation: Evaluation, fetch_s: Array) -> Array:
    """Exposed gathers and reductions of ZeRO-3 and FSDP.

        t = g (units + exposed(layers x gather + root, forward))
            + g exposed(r (layers x gather + root), frozen forward)
            + (g - n) exposed(layers x gather, backward) + n exposed(layers x (gather + reduce), backward)
            + whole + copies + exchanges x stall
        exposed(x, compute) = max(x / layers, x - h) + stolen h,  h = min(x, share x compute)

    Every layer's weights are gathered in the forward and in the backward, its gradients reduce-scattered, in n of the g
    micro-batches of a step, and gathered in each of r frozen forwards. A layer takes the larger of compute and
    exchange; the first gather of each direction has nothing to hide behind. With weights in host memory an exchange
    takes no less time than the copy of the shard over PCIe. Each unit of an adapter adds its own time.
    DeepSpeed's settings say what is never sharded and gathered once a step, what the backward does not gather again,
    and whether anything is gathered ahead: where nothing is, no gather hides. Copies: `gathered_copies_s`.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    fetch_s : copies of the shard over PCIe in one pass over the weights, shape (layout,) [s]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: ZeRO (arXiv:1910.02054) and PyTorch FSDP (arXiv:2304.11277); the hidden share stands in the stack's file.
    """
    job, layouts, layers, told = evaluation.job, evaluation.layouts, evaluation.stages.fullest, evaluation.gathered
    groups = Groups.of(job, layouts)
    first_gather_s, gather_s, reduce_s = _sharded_exchanges_s(evaluation, groups, fetch_s)
    frozen_gather_s = np.zeros(len(layouts))  # of all passes of a micro-batch through frozen weights
    for companion, other in evaluation.passing:
        frozen_gather_s = frozen_gather_s + companion.forwards * _sharded_exchanges_s(other, groups, fetch_s)[0]

    def exposed_s(exchange_s: Array, compute_s: Array) -> Array:
        share = job.stack.overlap.sharding
        first = exchange_s / layers if share < 1.0 else 0.0  # nothing runs yet that could hide it
        hidden_s = np.minimum(exchange_s, share * compute_s.max(axis=0))
        return np.asarray(np.maximum(first, exchange_s - hidden_s) + _stolen(share) * hidden_s)

    def gathered_s(exchange_s: Array, compute_s: Array) -> Array:
        return np.where(told.hides > 0, exposed_s(exchange_s, compute_s), exchange_s)

    def reduced_s(exchange_s: Array, compute_s: Array) -> Array:
        alone_s = gather_s + exposed_s(exchange_s - gather_s, compute_s)
        return np.where(told.hides > 0, exposed_s(exchange_s, compute_s), alone_s)

    micro_batches = as_array(layouts.grad_accum)
    of_ranks_s, of_replicas_s = groups.stalls_s(job.network)
    reduced = micro_batches if job.stack.defaults.reduces_every_micro_batch else np.ones_like(micro_batches)
    passes = 2.0 + evaluation.recomputed
    forms = job.method.learning.adapters
    factors = sum(layers * each.form.tensors for layers, each in model_adapters(job.model, forms))
    factors += sum(each.form.tensors for each in head_adapters(job.model, forms))
    units_s = float(factors) / as_array(layouts.pp) * passes * job.stack.sharded_adapter_s
    return np.asarray(
        micro_batches * (units_s + gathered_s(first_gather_s, evaluation.forward_s))
        + micro_batches * gathered_s(frozen_gather_s, evaluation.frozen_s)
        + (micro_batches - reduced) * gathered_s(gather_s, evaluation.backward_s)
        + reduced * reduced_s(reduce_s, evaluation.backward_s)
        + _tensors(evaluation) * ((2.0 * micro_batches + reduced) * of_ranks_s + reduced * of_replicas_s)
        + _whole_gather_s(evaluation, groups)
        + gathered_copies_s(evaluation, reduced)
    )


def gathered_copies_s(evaluation: Evaluation, reductions: Array) -> Array:
    """Copies between tensors and the buffers of gathers and reductions, where the stack makes them.

        t = (2 g 2 W + n (gradient + reduced) / weight L) / (e bandwidth)

    What was gathered, W, is copied into tensors of its own behind each of two gathers in each of g micro-batches, read
    and written; gradients of what learns, L, are put together in the type of their reduction. They run between the
    kernels of the layers and hide nowhere.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    reductions : n, of a step, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: PyTorch torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather_copy_out,
    foreach_reduce_scatter_copy_in), both on the stream that computes.
    """
    job, sizes, held = evaluation.job, evaluation.sizes, evaluation.held
    if not job.stack.states.gathered_copies:
        return np.zeros(len(evaluation.layouts))
    gathered = (held.linear + held.experts).max(axis=0) * _gathered_bytes(evaluation)
    learned = evaluation.learned.max(axis=0) * (job.element_bytes + sizes.reduce)
    moved = as_array(evaluation.layouts.grad_accum) * 2.0 * 2.0 * gathered + reductions * learned
    device = job.device
    return np.asarray(moved / (device.memory_bound_efficiency * device.bandwidth_bytes_per_s))


def _gathered_bytes(evaluation: Evaluation) -> float:
    """Size of a gathered element of a layer: frozen weights in few bits stay so [bytes]."""
    method = evaluation.job.method
    return (method.frozen_linear_bytes or 0.0) if method.quantised else evaluation.sizes.gather


def _whole_gather_s(evaluation: Evaluation, groups: Groups) -> Array:
    """The gather of what is never sharded, once behind the update, shape (layout,) [s]."""
    whole = evaluation.gathered.whole.max(axis=0)
    if not np.any(whole):
        return np.zeros(len(evaluation.layouts))
    return groups.time_s(evaluation.job, ALL_GATHER, whole * evaluation.sizes.gather, np.zeros_like(whole))


def weight_fetch_s(evaluation: Evaluation) -> Array:
    """Copies of a rank's shard from host memory in one pass over the weights; nothing where they lie on the card.

        t = shard / PCIe rate

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: ZeRO-Infinity (arXiv:2104.07857).
    """
    held, ranks = evaluation.held, as_array(evaluation.layouts.zero_ranks)
    shard_bytes = (held.base + held.parts).max(axis=0) * evaluation.sizes.gather / ranks
    copy_s = copy_time_s(shard_bytes, evaluation.job.server.pcie_bytes_per_s)
    return np.where(evaluation.layouts.hosts_params, copy_s, 0.0)


def _sharded_exchanges_s(evaluation: Evaluation, groups: Groups, fetch_s: Array) -> tuple[Array, Array, Array]:
    """Of a micro-batch: gathers with the root's, gathers of the layers, and these with the reductions [s].

    What is whole no pass gathers; what stays from the forward the backward does not gather again.
    """
    job, sizes, held, told = evaluation.job, evaluation.sizes, evaluation.held, evaluation.gathered
    layers, base = evaluation.stages.fullest, evaluation.base * job.learning_layers.share
    size = _gathered_bytes(evaluation)
    ends = held.root + held.parts  # parts beside the layers are gathered with them
    layer, experts, root = (part.max(axis=0) for part in (held.mean_layer, held.mean_experts, ends))
    sharded = 1.0 - (told.whole / held.base).max(axis=0)
    again = np.clip(1.0 - (told.kept / held.base).max(axis=0), 0.0, 1.0)
    layer_gather_s = groups.time_s(job, ALL_GATHER, layer * size * sharded, experts * size * sharded)
    root_gather_s = groups.time_s(job, ALL_GATHER, root * sizes.gather, np.zeros_like(root))
    learning = layer * base + held.adapters.max(axis=0) / layers
    reduce = sizes.reduce
    layer_reduce_s = groups.time_s(job, REDUCE_SCATTER, learning * reduce, experts * base * reduce)
    return (
        np.maximum(layers * layer_gather_s + root_gather_s, fetch_s),
        np.maximum(layers * layer_gather_s * again, fetch_s),
        np.maximum(layers * (layer_gather_s * again + layer_reduce_s), fetch_s),
    )


# The pipeline schedule: bubble, imbalance and transfers between stages.


def pipeline_bubble_s(evaluation: Evaluation, passes: Passes) -> Array:
    """Idle time of a pipeline by its schedule.

        bubble = sum over the stages but the slowest of max(f F + b B + w W, 0), by the schedule's row

    The slowest stage works for grad_accum (F + B + W); before and after it the pipeline fills and drains.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)
    passes : of a micro-batch on the first, last and a middle stage, shape (3, layout) [s]

    Returns
    -------
    ndarray of float, shape (layout,), seconds of one optimizer step [s]

    Source: `training.layout`.
    """
    layouts, middles = evaluation.layouts, evaluation.stages.middles
    pp, vpp, micro_batches = (as_array(size) for size in (layouts.pp, layouts.vpp, layouts.grad_accum))
    return bubble_time_s(layouts.schedule, pp, vpp, micro_batches, passes, middles)


def pipeline_transfer_s(evaluation: Evaluation) -> Array:
    """Transfers of a pipeline that are not hidden.

        transfers = w vpp grad_accum x (2 boundary + sum of r boundaries of frozen weights) x (1 - hidden share)
        boundary = send(b s h), or send(b s h / tp) + gather(b s h) over the tp ranks where they scatter it

    Each micro-batch crosses every boundary of its rank once a chunk in each direction, and once more forwards in each
    of r passes through frozen weights. Stages between others have two boundaries: both are waited for (w = 2) where
    sends and receives are not paired. Nothing hides a transfer where a stage has one chunk and its passes follow one
    another. The boundary tensor is the hidden state of one micro-batch.

    Parameters
    ----------
    evaluation : a job under layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,), seconds of one optimizer step [s]

    Source: `training.layout`.
    """
    job, layouts, shapes = evaluation.job, evaluation.layouts, evaluation.critical_shapes
    waited = np.where((layouts.pp > 2) & (not job.stack.boundaries.paired), 2.0, 1.0)
    crossed_s = 2.0 * _boundary_s(job, layouts, shapes)
    for companion, other in evaluation.passing:
        crossed_s = crossed_s + companion.forwards * _boundary_s(other.job, layouts, shapes)
    hidden = np.where(HAS_OTHER_WORK[layouts.schedule] | (layouts.vpp > 1), job.stack.overlap.pipeline, 0.0)
    return np.asarray(waited * as_array(layouts.vpp) * as_array(layouts.grad_accum) * crossed_s * (1.0 - hidden))


def _boundary_s(job: Job, layouts: Layouts, shapes: RankShapes) -> Array:
    """One boundary tensor from stage to stage, shape (layout,) [s]; nothing without a pipeline."""
    inputs, tp, several = shapes.inputs, as_array(layouts.tp), layouts.pp > 1
    width = job.model.hidden * job.model.residual_streams
    message = shapes.broadcast(inputs.rank.resident_tokens * width * inputs.element_bytes)
    inside = as_array(layouts.gpus) <= job.network.node_ranks  # else some boundary lies between nodes
    scattered = job.stack.boundaries.scattered & (layouts.tp > 1) & ~layouts.sequence_parallel.astype(bool)
    sent = message / np.where(scattered, tp, 1.0)
    send_s = collective_time_s(
        POINT_TO_POINT, sent, np.where(several, 2.0, 1.0), np.where(inside, 2.0, 1.0), job.network
    )
    ranks = np.where(scattered & several, tp, 1.0)
    gather_s = collective_time_s(ALL_GATHER, message, ranks, np.minimum(ranks, job.network.node_ranks), job.network)
    return send_s + gather_s
