"""Time of one micro-batch on one pipeline stage: kernels, exchanges inside the layers, the waiting for the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.cost.collectives import collective_time_s
from xe_sizer.cost.host import exposed_launch_time_s
from xe_sizer.graph.operators import Array, Collective, Operator, as_array, recomputed_share
from xe_sizer.graph.transformer import GraphInputs, embedding_operators, head_operators, layer_operators
from xe_sizer.pricing import OperatorTime, launch_counts, price
from xe_sizer.training.job import Job
from xe_sizer.training.layout import FULL, SELECTIVE, Layouts
from xe_sizer.training.sharding import layers_per_stage

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
    modules : module -> (forward, backward) seconds of its kernels; recomputation counts as backward
    forward_s, backward_s : kernels, exchanges and gaps of each direction; other exchanges can hide behind them
    weight_s : the part of the backward that makes weight gradients
    """

    parts: dict[str, Array]
    modules: dict[str, tuple[Array, Array]]
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


def _sums(times: Iterable[OperatorTime], shape: tuple[int, ...]) -> tuple[Array, Array]:
    forward, backward = np.zeros(shape), np.zeros(shape)
    for time in times:
        forward, backward = forward + time.forward_s, backward + time.backward_s
    return forward, backward


def _weights_s(times: Iterable[OperatorTime], shape: tuple[int, ...]) -> Array:
    return np.zeros(shape) + sum(time.weight_s for time in times)


def _exchanges(operators: Iterable[Operator], job: Job, layouts: Layouts) -> dict[str, tuple[Array, Array]]:
    """Seconds of the collectives inside the layers by group, forward and backward, over all layers; unhidden."""
    node = job.network.node_ranks
    sizes = {"tp": layouts.tp, "cp": layouts.cp, "ep": layouts.ep}
    inner = {"tp": 1, "cp": layouts.tp, "ep": layouts.expert_tp}
    total = {group: (np.zeros(len(layouts)), np.zeros(len(layouts))) for group in sizes}
    active = {group for group, size in sizes.items() if np.any(size > 1)}
    for op in operators:
        if not isinstance(op, Collective) or op.group not in active:
            continue
        ranks = as_array(sizes[op.group])
        per_node = np.clip(node // np.asarray(inner[op.group]), 1, ranks)
        seconds = [
            op.layers
            * sum(
                (collective_time_s(kind, message, ranks, per_node, job.network) for kind, message in side),
                np.zeros(1),
            )
            for side in (op.forward, op.backward)
        ]
        before = total[op.group]
        total[op.group] = (before[0] + seconds[0], before[1] + seconds[1])
    factor = 1.0 / job.stack.efficiency.collectives
    return {group: (forward * factor, backward * factor) for group, (forward, backward) in total.items()}


def _hidden_share(job: Job, group: str) -> float:
    overlap = job.stack.overlap
    return {"tp": overlap.tensor_parallel, "cp": overlap.context_parallel, "ep": overlap.expert_parallel}[group]


def _recomputed(times: Iterable[OperatorTime], layouts: Layouts, shape: tuple[int, ...], selective: str) -> Array:
    """Forward seconds that run again in the backward: all of a layer, or what the stack selects."""
    everything, selected = np.zeros(shape), np.zeros(shape)
    for time in times:
        everything = everything + time.forward_s
        selected = selected + recomputed_share(time.operator, selective) * time.forward_s
    return np.select([layouts.recompute == FULL, layouts.recompute == SELECTIVE], [everything, selected], 0.0)


def _modules(
    groups: Iterable[tuple[Array, Iterable[OperatorTime], ArrayLike]], selective: str
) -> dict[str, tuple[Array, Array]]:
    """Seconds by module; `groups` are (share on each stage, operator times, recomputation of their forward)."""
    modules: dict[str, tuple[Array, Array]] = {}
    for on_stage, times, recompute in groups:
        mode = np.asarray(recompute)
        everything, selected = (mode == FULL).astype(float), (mode == SELECTIVE).astype(float)
        for time in times:
            forward, backward = modules.get(time.operator.module, (0.0 * on_stage, 0.0 * on_stage))
            redone = (everything + selected * recomputed_share(time.operator, selective)) * time.forward_s
            modules[time.operator.module] = (
                forward + on_stage * time.forward_s, backward + on_stage * (time.backward_s + redone),
            )  # fmt: skip
    return modules


def _exchanged(
    job: Job, layouts: Layouts, stages: _Stages, operators: tuple[tuple[Operator, ...], ...]
) -> dict[str, tuple[Array, Array]]:
    """Seconds of the collectives that the stack does not hide, by part, forward and backward with recomputation.

    Layers recompute theirs, embedding and head do not.
    """
    again = (layouts.recompute == FULL).astype(float)
    layers, embedding, head = (_exchanges(ops, job, layouts) for ops in operators)
    shown = {}
    for group, (there, back) in layers.items():
        ends = [stages.total(0.0 * there, embedding[group][side], head[group][side]) for side in (0, 1)]
        share = 1.0 - _hidden_share(job, group)
        shown[GROUP_PART[group]] = (
            share * (stages.layers * there + ends[0]),
            share * (stages.layers * (back + again * there) + ends[1]),
        )
    return shown


def stage_time(job: Job, layouts: Layouts, inputs: GraphInputs) -> StageTime:
    """Time of one micro-batch on the first, the last and a middle stage under each layout.

    forward + backward: operator laws. recompute: the forward of what was dropped. Exchanges: what the stack does not
    hide. host: launches that take longer than the kernels they start.
    """
    shape = (len(layouts),)
    stages = _Stages.of(job, layouts)
    operators = (layer_operators(inputs), embedding_operators(inputs), head_operators(inputs))
    layers, embedding, head = (price(ops, job.device) for ops in operators)
    sums = [_sums(times, shape) for times in (layers, embedding, head)]
    forward, backward = (stages.total(*(part[side] for part in sums)) for side in (0, 1))
    selective = inputs.kernels.selective
    recompute = stages.layers * _recomputed(layers, layouts, shape, selective)
    exchanged = _exchanged(job, layouts, stages, operators)
    forward_s = forward + sum(there for there, _ in exchanged.values())
    backward_s = backward + recompute + sum(back for _, back in exchanged.values())
    forward_gap_s, backward_gap_s = _waiting_for_host(job, layouts, stages, operators, forward_s, backward_s)
    parts = {"forward": forward, "backward": backward, "recompute": recompute}
    parts |= {name: there + back for name, (there, back) in exchanged.items()}
    parts["host"] = forward_gap_s + backward_gap_s + job.stack.micro_batch_overhead_s
    groups = ((stages.layers, layers, layouts.recompute), (stages.embedding, embedding, 0), (stages.head, head, 0))
    return StageTime(
        parts={name: parts[name] for name in PART_NAMES},
        modules=_modules(groups, selective),
        # Copy engines run on while the accelerator waits for launches, so the gaps hide exchanges too.
        forward_s=forward_s + forward_gap_s,
        backward_s=backward_s + backward_gap_s,
        weight_s=stages.total(*(_weights_s(times, shape) for times in (layers, embedding, head))),
    )


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
