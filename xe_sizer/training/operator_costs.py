"""A step operator by operator: what each kernel and each exchange takes of it, on the stage that decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Collective, as_array
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import NETWORK, OperatorCost, operator_work, sizes_of
from xe_sizer.training.layout import SELECTIVE
from xe_sizer.training.recomputation import recomputed_layers_share
from xe_sizer.training.stage_time import EXCHANGE_PARTS, MicroBatch, backward, forward, frozen_forward, recompute

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.laws.operator_time import OperatorWork
    from xe_sizer.training.step import Timeline


@frozen
class _Passes:
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

    Source: `laws.operator_work.operator_work` and `laws.exchange_time.exchange_times`.
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
