"""Seconds of one optimizer step: operators of each stage, exchanges, the pipeline, and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.inputs import GENERATOR
from xe_sizer.graph.operators import Array, Attention, Collective, Matmul, as_array
from xe_sizer.graph.recompute import recomputed_exchanges
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.graph.vision import VISION
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, REDUCE_SCATTER, collective_time_s, copy_time_s
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import (
    NETWORK,
    OperatorCost,
    exposed_launch_time_s,
    launch_counts,
    operator_times,
    operator_work,
    sizes_of,
)
from xe_sizer.laws.parts import Part, computed, part
from xe_sizer.training.activations import (
    activations,
    encoder_flops,
    encoding_of,
    forward_flops,
    needed_flops,
    offloaded_layers,
    operator_groups,
    recomputed_flops,
    recomputed_layers_share,
    runs_backward,
)
from xe_sizer.training.communication import (
    Groups,
    StageTime,
    exchange_every_micro_batch,
    exchange_once_a_step,
    pipeline,
    weight_fetch_s,
)
from xe_sizer.training.generator import generation_of, generator_flops
from xe_sizer.training.layout import SELECTIVE, Passes, stages_of
from xe_sizer.training.model_states import Shards, StateBytes, census, keeps_fresh_gradients, learning_elements, swap_s
from xe_sizer.training.optimizer_step import matrix_work_time_s
from xe_sizer.training.rank import queries_and_candidates

if TYPE_CHECKING:
    from xe_sizer.graph.operators import IntArray, Operator
    from xe_sizer.laws.operator_time import OperatorTime, OperatorWork
    from xe_sizer.training.communication import Pipeline
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.model_states import Census
    from xe_sizer.training.padding import Sequences

# Time of one micro-batch on one pipeline stage: kernels, exchanges inside the layers, the waiting for the host.

EXPERTS = "experts"  # module of the operators between the counts of tokens and their sum


class StageShares(Immutable):
    """How much of layers, embedding and head each stage runs, shape (stage, layout)."""

    layers: Array
    embedding: Array
    head: Array

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> StageShares:
        one = np.ones(len(layouts))
        single = (layouts.pp == 1).astype(float)
        stages = stages_of(job.model.layers, job.split, layouts)
        return cls(
            stages.layers / job.model.layers,
            np.stack([one, single, 0 * one]),
            np.stack([np.maximum(single, stages.head_first), 1.0 - stages.head_first, 0 * one]),
        )

    def total(self, layers: Array, embedding: Array, head: Array) -> Array:
        return self.layers * layers + self.embedding * embedding + self.head * head


def _sums(times: Iterable[OperatorTime], shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Forward, backward and weight gradients of the operators together [s]."""
    forward, backward, weights = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for time in times:
        forward, backward, weights = forward + time.forward_s, backward + time.backward_s, weights + time.weight_s
    return forward, backward, weights


def _recomputed(times: Iterable[OperatorTime], layouts: Layouts, shapes: RankShapes, whole: Array) -> Array:
    """Forward seconds of a layer that run again in the backward: of whole layers their share, or what is selected."""
    size = shapes.inputs.rank.tp.shape
    everything, selected = np.zeros(size), np.zeros(size)
    for time in times:
        everything = everything + time.forward_s
        selected = selected + time.operator.again * time.forward_s
    return np.where(layouts.recompute == SELECTIVE, shapes.spread(selected), whole * shapes.spread(everything))


def _exposed_share(exchange_s: Array, compute_s: Array) -> Array:
    """Share of an exchange that goes on when the compute beside it is done [-]."""
    left_s = np.maximum(exchange_s - compute_s, 0.0)
    return np.divide(left_s, exchange_s, out=np.zeros(np.shape(left_s)), where=exchange_s > 0)


class MicroBatch(Immutable):
    """What the parts of a micro-batch are computed from; seconds have shape (stage, layout).

    Operators are timed once for every distinct shape that a rank sees.
    """

    job: Job
    layouts: Layouts
    shapes: RankShapes

    @cached_property
    def stages(self) -> StageShares:
        return StageShares.of(self.job, self.layouts)

    @cached_property
    def operators(self) -> tuple[tuple[Operator, ...], ...]:
        """Of the layers, the embedding and the head."""
        return operator_groups(self.job, self.shapes.inputs)

    @cached_property
    def runs_back(self) -> tuple[Array, Array, Array]:
        """Whether the backward passes the layers, the embedding and the head, shape (layout,)."""
        return runs_backward(self.job, self.layouts)

    @cached_property
    def times(self) -> tuple[tuple[OperatorTime, ...], ...]:
        return tuple(operator_times(operators, self.job.device) for operators in self.operators)

    @cached_property
    def kernels_s(self) -> tuple[Array, Array, Array]:
        """Kernels of the forward, of the backward, and of that those of weight gradients [s]."""
        sums = [_sums(times, self.shapes.inputs.rank.tp.shape) for times in self.times]
        spread = [[self.shapes.spread(side) for side in group] for group in sums]
        forward = self.stages.total(*(group[0] for group in spread))
        learn = self.job.learning_layers
        shares = ((learn.reach, learn.share), (learn.ends, learn.ends), (1.0, learn.ends))
        groups = [
            (runs * (reach * (group[1] - group[2]) + share * group[2]), runs * share * group[2])
            for runs, group, (reach, share) in zip(self.runs_back, spread, shares, strict=True)
        ]
        backward, weights = (self.stages.total(*(group[side] for group in groups)) for side in (0, 1))
        return forward, backward, weights

    @cached_property
    def recompute_s(self) -> Array:
        again = _recomputed(self.times[0], self.layouts, self.shapes, recomputed_layers_share(self.job, self.layouts))
        return self.stages.layers * self.runs_back[0] * self.job.learning_layers.reach * again

    @cached_property
    def collectives_s(self) -> tuple[dict[str, tuple[Array, Array]], ...]:
        """Exchanges of the layers, the embedding and the head by group, hidden or not, for each shape of rank [s]."""
        job, rank = self.job, self.shapes.inputs.rank
        factor = job.stack.efficiency.collectives
        return tuple(exchange_times(operators, rank, job.network, factor) for operators in self.operators)

    @cached_property
    def selected_s(self) -> dict[str, tuple[Array, Array]]:
        """Of the layers' exchanges those that selective recomputation runs again, by group and shape of rank [s]."""
        chosen = recomputed_exchanges(self.operators[0])
        if not chosen or not np.any(self.layouts.recompute == SELECTIVE):
            return {}
        factor = self.job.stack.efficiency.collectives
        return exchange_times(chosen, self.shapes.inputs.rank, self.job.network, factor)

    @cached_property
    def exposed(self) -> dict[str, tuple[Array, Array]]:
        """Share of each parallel group's exchanges that nothing hides, forward and backward, by shape of rank [-].

        The stack says it of most. A ring passes keys and values on behind attention to those that are there:
        exposed = max(t - (n - 1) / n attention, 0) / t. Attention waits for sequences that are exchanged for heads.
        """
        overlap, inputs = self.job.stack.overlap, self.shapes.inputs
        hidden = {"tp": overlap.tensor_parallel, "etp": overlap.tensor_parallel, "cp": overlap.context_parallel}
        hidden |= {"ep": overlap.expert_parallel, "heads": 0.0}
        one = np.ones(inputs.rank.tp.shape)
        shares = {group: ((1.0 - share) * one, (1.0 - share) * one) for group, share in hidden.items()}
        if inputs.kernels.context in ("ring", "hybrid"):
            behind = 1.0 - 1.0 / inputs.rank.ring_ranks
            attention = [time for time in self.times[0] if isinstance(time.operator, Attention)]
            forward_s, backward_s = (
                behind * sum((getattr(time, side) for time in attention), np.zeros(1))
                for side in ("forward_s", "backward_s")
            )
            there, back = self.collectives_s[0]["cp"]
            shares["cp"] = (_exposed_share(there, forward_s), _exposed_share(back, backward_s))
        return shares

    @cached_property
    def exchanged_s(self) -> dict[str, tuple[Array, Array]]:
        """Exchanges that the stack does not hide by parallel group, forward and backward [s].

        Layers exchange once more when they are recomputed, whole or what is selected; embedding and head do not.
        """
        stages, again = self.stages, recomputed_layers_share(self.job, self.layouts)
        selective, exchanged = as_array(self.layouts.recompute == SELECTIVE), {}
        for group, shares in self.exposed.items():
            sides = [
                [self.shapes.spread(share * exchanges[group][side]) for exchanges in self.collectives_s]
                for side, share in enumerate(shares)
            ]
            there, back = (stages.total(*side) for side in sides)
            once_more = again * sides[0][0]
            if group in self.selected_s:
                once_more = once_more + selective * self.shapes.spread(shares[0] * self.selected_s[group][0])
            exchanged[group] = (there, self.runs_back[0] * (back + stages.layers * once_more))
        return exchanged

    @cached_property
    def forward_s(self) -> Array:
        """Kernels and exchanges of the forward [s]."""
        return self.kernels_s[0] + sum(there for there, _ in self.exchanged_s.values())

    @cached_property
    def backward_s(self) -> Array:
        """Kernels and exchanges of the backward, with what it recomputes [s]."""
        return self.kernels_s[1] + self.recompute_s + sum(back for _, back in self.exchanged_s.values())

    @cached_property
    def gaps_s(self) -> tuple[Array, Array]:
        """Exposed launches of forward and backward [s]: the host starts kernels one after the other."""
        stack, counts = self.job.stack, [launch_counts(operators) for operators in self.operators]
        spread = [[self._spread(side) for side in count] for count in counts]
        forward = self.stages.total(*(count[0] for count in spread))
        backward = self.stages.total(*(runs * count[1] for runs, count in zip(self.runs_back, spread, strict=True)))
        again = self.runs_back[0] * recomputed_layers_share(self.job, self.layouts)
        recomputed = again * self.stages.layers * spread[0][0]
        backward_launch_s = backward * stack.backward_launch_s + recomputed * stack.forward_launch_s
        launched, run_s = self._behind_counts()
        ahead_s, launch_s = self.forward_s - run_s, stack.forward_launch_s
        forward_gap_s = exposed_launch_time_s(forward - launched, launch_s, ahead_s)
        forward_gap_s = forward_gap_s + exposed_launch_time_s(launched, launch_s, run_s)
        return forward_gap_s, np.maximum(0.0, backward_launch_s - self.backward_s)

    def _behind_counts(self) -> tuple[Array, Array]:
        """Launches and kernels [s] of the forward behind counts of tokens that the host reads, in layers with experts.

        A product for each expert needs to know its rows, so the queue runs empty once a layer: what comes after the
        counts does not hide behind what came before: TEGroupedMLP.forward of Megatron-Core (tokens_per_expert.tolist),
        the loops of transformers (nonzero).
        """
        operators = [op for op in self.operators[0] if op.module == EXPERTS]
        if not any(isinstance(op, Matmul) and op.apart for op in operators):
            return np.zeros_like(self.forward_s), np.zeros_like(self.forward_s)
        kernels = sum((time.forward_s for time in self.times[0] if time.operator.module == EXPERTS), np.zeros(1))
        launched, run_s = self._spread(launch_counts(operators)[0]), self._spread(kernels)
        return self.stages.layers * launched, self.stages.layers * run_s

    def _spread(self, launched: Array) -> Array:
        """Launches of the distinct shapes of ranks, by layout."""
        return self.shapes.spread(np.broadcast_to(launched, self.shapes.inputs.rank.tp.shape))

    @cached_property
    def frozen_s(self) -> Array:
        """Passes through frozen weights: kernels, exchanges and launches of the forward alone [s]."""
        total_s = np.zeros_like(self.kernels_s[0])
        for companion in self.job.method.passing:
            job, shapes = self.job.beside_shapes(companion, self.shapes, self.layouts)
            one = MicroBatch(job, self.layouts, shapes)
            total_s = total_s + companion.forwards * (one.forward_s + one.gaps_s[0] + one.encoder_s[0])
        return total_s

    @cached_property
    def encoder_s(self) -> tuple[Array, Array, Array]:
        """Of the image encoder on the first stage: forward, backward, and of that weight gradients [s].

        Kernels, exchanges and launches of each, and what the backward recomputes.
        """
        part = encoding_of(self.job, self.layouts)
        if part is None:
            return (np.zeros_like(self.kernels_s[0]),) * 3
        one = MicroBatch(part.job, part.layouts, part.shapes)
        times = (one.forward_s + one.gaps_s[0], one.backward_s + one.gaps_s[1], one.kernels_s[2])
        forward, backward, weights = (self.stages.embedding * side[0] for side in times)
        return forward, backward, weights

    @cached_property
    def generator_s(self) -> tuple[Array, Array, Array]:
        """Of the generator of replaced tokens on the first stage: forward, backward, and of that weight gradients [s].

        Kernels, exchanges and launches of each, and what the backward recomputes.
        """
        part = generation_of(self.job, self.layouts)
        if part is None:
            return (np.zeros_like(self.kernels_s[0]),) * 3
        shapes = part.shapes(self.shapes.spread(self.shapes.inputs.rank.sequence))
        one = MicroBatch(part.job, part.layouts, shapes)
        times = (one.forward_s + one.gaps_s[0], one.backward_s + one.gaps_s[1], one.kernels_s[2])
        forward, backward, weights = (self.stages.embedding * side[0] for side in times)
        return forward, backward, weights

    @cached_property
    def beside_s(self) -> tuple[Array, Array, Array]:
        """Of all that learns beside the model's own layers: forward, backward, and of that weight gradients [s]."""
        forward, backward, weights = (
            encoding + generating for encoding, generating in zip(self.encoder_s, self.generator_s, strict=True)
        )
        return forward, backward, weights

    def exposed_exchange_s(self, group: str) -> Array:
        """Both directions of a parallel group's exchanges, one of those of `exposed` [s]."""
        there, back = self.exchanged_s[group]
        return there + back


@part("forward", "sum of the operators' laws over the stage's layers x micro-batches", "accelerator profile")
def forward(micro_batch: MicroBatch) -> Array:
    return micro_batch.kernels_s[0]


@part("backward", "input and weight gradients by the same laws x micro-batches", "accelerator profile")
def backward(micro_batch: MicroBatch) -> Array:
    return micro_batch.kernels_s[1]


@part("frozen forward", "forward of frozen weights beside the training, with its exchanges", "method; operator laws")
def frozen_forward(micro_batch: MicroBatch) -> Array:
    return micro_batch.frozen_s


@part(
    "image encoder",
    "forward of the encoder and the projector of images, backward of what learns or passes gradients on, by the same "
    "laws x micro-batches",
    "operator laws",
)
def image_encoder(micro_batch: MicroBatch) -> Array:
    there, back, _ = micro_batch.encoder_s
    return there + back


@part(
    "generator",
    "forward and backward of the generator that replaces tokens, its head on the masked ones, by the same laws x "
    "micro-batches",
    "arXiv:2003.10555; operator laws",
)
def generator(micro_batch: MicroBatch) -> Array:
    there, back, _ = micro_batch.generator_s
    return there + back


@part("recompute", "forward of the dropped part once more", "arXiv:2205.05198")
def recompute(micro_batch: MicroBatch) -> Array:
    return micro_batch.recompute_s


@part("host", "max(0, launches x launch time - kernel time), and per micro-batch overhead", "stack")
def host(micro_batch: MicroBatch) -> Array:
    forward_gap_s, backward_gap_s = micro_batch.gaps_s
    return forward_gap_s + backward_gap_s + micro_batch.job.stack.micro_batch_overhead_s


@part(
    "tensor-parallel communication",
    "alpha + c sqrt(bytes) + bytes / bandwidth, less what the stack hides",
    "collective laws",
)
def tensor_parallel(micro_batch: MicroBatch) -> Array:
    return micro_batch.exposed_exchange_s("tp") + micro_batch.exposed_exchange_s("etp")


@part(
    "context-parallel communication",
    "keys, values and their gradients gathered or passed on, or sequences for heads, less what is hidden",
    "collective laws",
)
def context_parallel(micro_batch: MicroBatch) -> Array:
    return micro_batch.exposed_exchange_s("cp") + micro_batch.exposed_exchange_s("heads")


@part("expert-parallel communication", "all-to-all of routed tokens, there and back", "collective laws")
def expert_parallel(micro_batch: MicroBatch) -> Array:
    return micro_batch.exposed_exchange_s("ep")


COMPUTE_PARTS = (forward, backward, frozen_forward, image_encoder, generator, recompute)
EXCHANGE_PARTS = {
    "tp": tensor_parallel,
    "etp": tensor_parallel,
    "cp": context_parallel,
    "heads": context_parallel,
    "ep": expert_parallel,
}
MICRO_BATCH_PARTS = (*COMPUTE_PARTS, host, *dict.fromkeys(EXCHANGE_PARTS.values()))


def stage_time(job: Job, layouts: Layouts, shapes: RankShapes) -> StageTime:
    """Time of one micro-batch on the first, the last and a middle stage under each layout.

        t = sum of MICRO_BATCH_PARTS

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks, at the length of a sequence that the ranks wait for

    Returns
    -------
    StageTime, shape (stage, layout), seconds [s]

    Source: each part names its own.
    """
    micro_batch = MicroBatch(job, layouts, shapes)
    forward_gap_s, backward_gap_s = micro_batch.gaps_s
    return StageTime(
        parts=computed(MICRO_BATCH_PARTS, micro_batch),
        # Copy engines run on while the accelerator waits for launches, so the gaps hide exchanges too.
        forward_s=micro_batch.forward_s + forward_gap_s + micro_batch.beside_s[0],
        backward_s=micro_batch.backward_s + backward_gap_s + micro_batch.beside_s[1],
        weight_s=micro_batch.kernels_s[2] + micro_batch.beside_s[2],
        frozen_s=micro_batch.frozen_s,
    )


# Kernels of one micro-batch by module of the model.


def module_time(job: Job, layouts: Layouts, shapes: RankShapes, slowest: IntArray) -> dict[str, tuple[Array, Array]]:
    """Kernels of one micro-batch by module of the model.

    What is recomputed counts as backward, passes through frozen weights as forward.

        t = sum over the operators of a module of the share of the layers on the stage x law

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks
    slowest : the stage of each layout (0 first, 1 last, 2 middle), shape (layout,) [-]

    Returns
    -------
    dict of module -> (forward, backward), shape (layout,), seconds [s]

    Source: operator laws of the accelerator's profile.
    """
    stages, columns = StageShares.of(job, layouts), np.arange(len(layouts))
    shares = [part[slowest, columns] for part in (stages.layers, stages.embedding, stages.head)]
    none, whole = np.zeros(len(layouts)), recomputed_layers_share(job, layouts)
    modes = [(whole, layouts.recompute == SELECTIVE), (none, none), (none, none)]
    modules: dict[str, tuple[Array, Array]] = {}
    for module, frozen_s in _frozen_modules(job, layouts, shapes, slowest):
        forward, backward = modules.get(module, (np.zeros_like(frozen_s), np.zeros_like(frozen_s)))
        modules[module] = (forward + frozen_s, backward)
    groups = operator_groups(job, shapes.inputs)
    for on_stage, operators, (all_again, some_again) in zip(shares, groups, modes, strict=True):
        for time in operator_times(operators, job.device):
            forward, backward = modules.get(time.operator.module, (none, none))
            again = all_again + some_again * time.operator.again
            there, back = shapes.spread(time.forward_s), shapes.spread(time.backward_s)
            modules[time.operator.module] = (forward + on_stage * there, backward + on_stage * (back + again * there))
    return modules | _encoder_module(job, layouts, shares[1]) | _generator_module(job, layouts, shapes, shares[1])


def _encoder_module(job: Job, layouts: Layouts, on_stage: Array) -> dict[str, tuple[Array, Array]]:
    """The kernels of the image encoder, where there are images: its module, forward and backward, shape (layout,) [s].

    on_stage : whether the stage has the embedding
    """
    part = encoding_of(job, layouts)
    if part is None:
        return {}
    one = MicroBatch(part.job, part.layouts, part.shapes)
    backward = one.kernels_s[1][0] + one.recompute_s[0]
    return {VISION: (on_stage * one.kernels_s[0][0], on_stage * backward)}


def _generator_module(
    job: Job, layouts: Layouts, shapes: RankShapes, on_stage: Array
) -> dict[str, tuple[Array, Array]]:
    """The kernels of a generator of replaced tokens, where there is one, as of an encoder; shape (layout,) [s]."""
    part = generation_of(job, layouts)
    if part is None:
        return {}
    one = MicroBatch(part.job, part.layouts, part.shapes(shapes.spread(shapes.inputs.rank.sequence)))
    backward = one.kernels_s[1][0] + one.recompute_s[0]
    return {GENERATOR: (on_stage * one.kernels_s[0][0], on_stage * backward)}


def _frozen_modules(job: Job, layouts: Layouts, shapes: RankShapes, slowest: IntArray) -> Iterator[tuple[str, Array]]:
    """Module and time of each operator of the passes through frozen weights, shape (layout,) [s]."""
    for companion in job.method.passing:
        alone, seen = job.beside_shapes(companion, shapes, layouts)
        stages, columns = StageShares.of(alone, layouts), np.arange(len(layouts))
        shares = [part[slowest, columns] for part in (stages.layers, stages.embedding, stages.head)]
        for on_stage, operators in zip(shares, operator_groups(alone, seen.inputs), strict=True):
            for time in operator_times(operators, job.device):
                yield time.operator.module, companion.forwards * on_stage * seen.spread(time.forward_s)


# A step operator by operator: what each kernel and each exchange takes of it, on the stage that decides.


class _Passes(Immutable):
    """One group of operators on the slowest stage: layers, embedding or head.

    share : of the group that the stage runs; mode : what is recomputed of it; whole : share of it that runs again as a
    whole; backward : whether gradients are computed
    """

    micro_batch: MicroBatch
    operators: tuple[Operator, ...]
    share: float
    mode: int
    whole: float
    backward: bool = True

    def one(self, value: Array) -> float:
        """A figure of one layout."""
        return float(self.micro_batch.shapes.spread(np.atleast_1d(value))[0])

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
    job, layouts = line.job, line.layouts
    shapes = job.rank_shapes(layouts, as_array(line.sequences.critical_tokens))
    micro_batch = MicroBatch(job, layouts, shapes)
    accum, stage = float(layouts.grad_accum[0]), int(line.slowest[0])
    costs = [_scaled(cost, accum) for group in _groups(micro_batch, stage) for cost in _of_group(group)]
    for companion in job.method.passing:
        alone, seen = job.beside_shapes(companion, shapes, layouts)
        for group in _groups(MicroBatch(alone, layouts, seen), stage):
            forwards = replace(group, mode=0, whole=0.0, backward=False)
            costs += [_frozen(cost, companion.forwards * accum) for cost in _of_group(forwards)]
    return tuple(costs)


def _groups(micro_batch: MicroBatch, stage: int) -> Iterator[_Passes]:
    """Embedding, layers and head, as far as the stage has them."""
    stages, (layers, embedding, head) = micro_batch.stages, micro_batch.operators
    mode = int(micro_batch.layouts.recompute[0])
    whole = float(recomputed_layers_share(micro_batch.job, micro_batch.layouts)[0])
    for share, operators, again, all_again in (
        (stages.embedding, embedding, 0, 0.0),
        (stages.layers, layers, mode, whole),
        (stages.head, head, 0, 0.0),
    ):
        on_stage = float(share[stage, 0])
        if on_stage:
            yield _Passes(micro_batch, operators, on_stage, again, all_again)


def _of_group(group: _Passes) -> Iterator[OperatorCost]:
    """Of one micro-batch."""
    device = group.micro_batch.job.device
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
    job, inputs = group.micro_batch.job, group.micro_batch.shapes.inputs
    factor = job.stack.efficiency.collectives
    times = exchange_times((operator,), inputs.rank, job.network, factor, group.backward)
    there, back = (group.one(side) for side in times[operator.group])
    exposed, exposed_back = (group.one(share) for share in group.micro_batch.exposed[operator.group])
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
    return {name: group.one(size) for name, size in sizes_of(operator).items()}


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


def _frozen(cost: OperatorCost, factor: float) -> OperatorCost:
    """An operator of the passes through frozen weights beside the training."""
    return replace(_scaled(cost, factor), parts={frozen_forward.name: factor * sum(cost.parts.values())})


# Jobs that compare the states of sequences with each other: how many, and what ranks exchange for it.


@part(
    "gathered states",
    "all-gather of the states that queries are compared with, and reduce-scatter of their gradients",
    "collective laws; sentence-transformers",
)
def gathered_states(step: Step) -> Array:
    """None where every GPU compares its own sequences alone."""
    job, layouts, compared = step.job, step.layouts, step.job.method.compared
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


class Step(Immutable):
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


# Time of passes without a backward: evaluation, log-probabilities, values and rewards of many sequences.

GATHERS_OF_A_STEP = 3.0  # counted: exchanges of sharded weights in a micro-batch: two gathers, and gradients reduced


def forward_pass_s(job: Job, layouts: Layouts, sequences: ArrayLike) -> Array:
    """Time of the forward alone of so many sequences, in micro-batches of the training.

        micro-batches = ceil(sequences / (dp x micro-batch))
        t = (micro-batches + pp - 1) x forward of the slowest stage + micro-batches x gathers

    A pipeline fills and empties once. Sharded weights are gathered once for each micro-batch.

    Parameters
    ----------
    job : that learns, or one of what stands beside it (`Job.beside`)
    layouts : of shape (layout,)
    sequences : of all replicas [-]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: operator and collective laws.
    """
    step = Step(job, layouts, job.sequences(layouts))
    micro_batches = np.ceil(as_array(sequences) / (layouts.dp * layouts.micro_batch))
    forward_s = np.max(step.stage.forward_s + step.stage.frozen_s, axis=0)
    gathered_s, sharded = np.zeros(len(layouts)), (layouts.zero == 3) & (layouts.data_ranks > 1)
    if np.any(sharded):
        exchange_s = step.sharded_exchange_s(np.zeros(len(layouts))) / as_array(layouts.grad_accum)
        gathered_s = np.where(sharded, exchange_s / GATHERS_OF_A_STEP, 0.0)
    return np.asarray((micro_batches + layouts.pp - 1.0) * forward_s + micro_batches * gathered_s)
