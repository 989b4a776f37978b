"""Time of one micro-batch on one pipeline stage: kernels, exchanges inside the layers, the waiting for the host."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Attention, Matmul, as_array
from xe_sizer.graph.recompute import recomputed_exchanges
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import exposed_launch_time_s, launch_counts, operator_times
from xe_sizer.laws.parts import computed, part
from xe_sizer.training.encoder import encoding_of, operator_groups, runs_backward
from xe_sizer.training.generator import generation_of
from xe_sizer.training.layout import SELECTIVE
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.stages import stages_of

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.laws.operator_time import OperatorTime
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts


EXPERTS = "experts"  # module of the operators between the counts of tokens and their sum


@frozen
class StageTime:
    """Seconds of one micro-batch; arrays of shape (stage, layout), stages first, last and middle.

    parts : name -> seconds, those of MICRO_BATCH_PARTS; they sum to what the stage needs
    forward_s, backward_s : kernels, exchanges and gaps of each direction; other exchanges can hide behind them
    weight_s : the part of the backward spent on weight gradients
    frozen_s : passes through frozen weights beside the training
    """

    parts: dict[str, Array]
    forward_s: Array
    backward_s: Array
    weight_s: Array
    frozen_s: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(sum(self.parts.values()))


@frozen
class StageShares:
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


@frozen
class MicroBatch:
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
