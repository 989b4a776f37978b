"""Time of one micro-batch on one pipeline stage: kernels, exchanges inside the layers, the waiting for the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from xe_sizer.graph.operators import Array, Operator, as_array, recomputed_share
from xe_sizer.graph.transformer import GraphInputs, embedding_operators, head_operators, layer_operators
from xe_sizer.laws.host import exposed_launch_time_s
from xe_sizer.laws.operator_time import OperatorTime, exchange_times, launch_counts, operator_times
from xe_sizer.training.job import Job, RankShapes
from xe_sizer.training.layout import FULL, SELECTIVE, Layouts
from xe_sizer.training.sharding import layers_per_stage
from xe_sizer.training.unique_rows import IntArray

PART_NAMES = (
    "forward",
    "backward",
    "recompute",
    "host",
    "tensor-parallel communication",
    "context-parallel communication",
    "expert-parallel communication",
)
GROUP_PART = {"tp": PART_NAMES[4], "cp": PART_NAMES[5], "ep": PART_NAMES[6]}


@dataclass(frozen=True, eq=False)
class StageTime:
    """Seconds of one micro-batch; arrays of shape (stage, layout), stages first, last and middle.

    parts : PART_NAMES -> seconds, they sum to what the stage needs
    forward_s, backward_s : kernels, exchanges and gaps of each direction; other exchanges can hide behind them
    weight_s : the part of the backward that makes weight gradients
    """

    parts: dict[str, Array]
    forward_s: Array
    backward_s: Array
    weight_s: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(sum(self.parts.values()))


@dataclass(frozen=True, eq=False)
class _Stages:
    """How much of layers, embedding and head each stage runs, shape (stage, layout)."""

    layers: Array
    embedding: Array
    head: Array

    @classmethod
    def of(cls, job: Job, layouts: Layouts) -> _Stages:
        one = np.ones(len(layouts))
        single = (layouts.pp == 1).astype(float)
        share = layers_per_stage(job.model, layouts) / job.model.layers
        return cls(np.stack([share] * 3), np.stack([one, single, 0 * one]), np.stack([single, one, 0 * one]))

    def total(self, layers: Array, embedding: Array, head: Array) -> Array:
        return self.layers * layers + self.embedding * embedding + self.head * head


def _sums(times: Iterable[OperatorTime], shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Forward, backward and weight gradients of the operators together [s]."""
    forward, backward, weights = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for time in times:
        forward, backward, weights = forward + time.forward_s, backward + time.backward_s, weights + time.weight_s
    return forward, backward, weights


def _hidden_share(job: Job, group: str) -> float:
    overlap = job.stack.overlap
    return {"tp": overlap.tensor_parallel, "cp": overlap.context_parallel, "ep": overlap.expert_parallel}[group]


def _recomputed(times: Iterable[OperatorTime], layouts: Layouts, shapes: RankShapes) -> Array:
    """Forward seconds that run again in the backward: all of a layer, or what the stack selects."""
    size = shapes.inputs.rank.tp.shape
    everything, selected = np.zeros(size), np.zeros(size)
    for time in times:
        everything = everything + time.forward_s
        selected = selected + recomputed_share(time.operator, shapes.inputs.kernels.selective) * time.forward_s
    modes = [layouts.recompute == FULL, layouts.recompute == SELECTIVE]
    return np.select(modes, [shapes.spread(everything), shapes.spread(selected)], 0.0)


def _exchanged(
    job: Job, layouts: Layouts, stages: _Stages, shapes: RankShapes, operators: tuple[tuple[Operator, ...], ...]
) -> dict[str, tuple[Array, Array]]:
    """Seconds of the collectives that the stack does not hide, by part, forward and backward with recomputation.

    Layers recompute theirs, embedding and head do not.
    """
    again = (layouts.recompute == FULL).astype(float)
    factor = job.stack.efficiency.collectives
    found = [exchange_times(ops, shapes.inputs.rank, job.network, factor) for ops in operators]
    shown = {}
    for group, part in GROUP_PART.items():
        share = 1.0 - _hidden_share(job, group)
        layers, embedding, head = ([shapes.spread(side) for side in exchanges[group]] for exchanges in found)
        ends = [stages.embedding * embedding[side] + stages.head * head[side] for side in (0, 1)]
        there, back = layers
        shown[part] = (
            share * (stages.layers * there + ends[0]),
            share * (stages.layers * (back + again * there) + ends[1]),
        )
    return shown


def _operators(inputs: GraphInputs) -> tuple[tuple[Operator, ...], ...]:
    return layer_operators(inputs), embedding_operators(inputs), head_operators(inputs)


def stage_time(job: Job, layouts: Layouts, shapes: RankShapes) -> StageTime:
    """Time of one micro-batch on the first, the last and a middle stage under each layout.

    forward + backward: operator laws. recompute: the forward of what was dropped. Exchanges: what the stack does not
    hide. host: launches that take longer than the kernels they start. Operators are priced once for every distinct
    shape that a rank sees.
    """
    stages, operators = _Stages.of(job, layouts), _operators(shapes.inputs)
    times = [operator_times(ops, job.device) for ops in operators]
    sums = [_sums(times, shapes.inputs.rank.tp.shape) for times in times]
    forward, backward, weight_s = (stages.total(*(shapes.spread(part[side]) for part in sums)) for side in range(3))
    recompute = stages.layers * _recomputed(times[0], layouts, shapes)
    exchanged = _exchanged(job, layouts, stages, shapes, operators)
    forward_s = forward + sum(there for there, _ in exchanged.values())
    backward_s = backward + recompute + sum(back for _, back in exchanged.values())
    forward_gap_s, backward_gap_s = _waiting_for_host(job, layouts, stages, operators, forward_s, backward_s)
    parts = {"forward": forward, "backward": backward, "recompute": recompute}
    parts |= {name: there + back for name, (there, back) in exchanged.items()}
    parts["host"] = forward_gap_s + backward_gap_s + job.stack.micro_batch_overhead_s
    return StageTime(
        parts={name: parts[name] for name in PART_NAMES},
        # Copy engines run on while the accelerator waits for launches, so the gaps hide exchanges too.
        forward_s=forward_s + forward_gap_s,
        backward_s=backward_s + backward_gap_s,
        weight_s=weight_s,
    )


def module_time(job: Job, layouts: Layouts, shapes: RankShapes, slowest: IntArray) -> dict[str, tuple[Array, Array]]:
    """Module -> forward and backward seconds of its kernels in one micro-batch of a stage; recomputation is backward.

    slowest : the stage of each layout (0 first, 1 last, 2 middle)
    """
    stages, columns = _Stages.of(job, layouts), np.arange(len(layouts))
    selective = shapes.inputs.kernels.selective
    shares = [part[slowest, columns] for part in (stages.layers, stages.embedding, stages.head)]
    modes = [layouts.recompute, 0 * layouts.recompute, 0 * layouts.recompute]
    modules: dict[str, tuple[Array, Array]] = {}
    for on_stage, operators, mode in zip(shares, _operators(shapes.inputs), modes, strict=True):
        for time in operator_times(operators, job.device):
            forward, backward = modules.get(time.operator.module, (0.0 * on_stage, 0.0 * on_stage))
            again = (mode == FULL) + (mode == SELECTIVE) * recomputed_share(time.operator, selective)
            there, back = shapes.spread(time.forward_s), shapes.spread(time.backward_s)
            modules[time.operator.module] = (forward + on_stage * there, backward + on_stage * (back + again * there))
    return modules


def _waiting_for_host(
    job: Job,
    layouts: Layouts,
    stages: _Stages,
    operators: tuple[tuple[Operator, ...], ...],
    forward_s: Array,
    backward_s: Array,
) -> tuple[Array, Array]:
    """Exposed launches of forward and backward [s]: the host starts kernels one after the other."""
    counts = [launch_counts(ops) for ops in operators]
    forward, backward = (stages.total(*(as_array(count[side]) for count in counts)) for side in (0, 1))
    recomputed = (layouts.recompute == FULL) * stages.layers * counts[0][0]
    forward_gap_s = exposed_launch_time_s(forward, job.stack.forward_launch_s, forward_s)
    redo_s = recomputed * job.stack.forward_launch_s
    backward_launch_s = backward * job.stack.backward_launch_s + redo_s
    return forward_gap_s, np.maximum(0.0, backward_launch_s - backward_s)
