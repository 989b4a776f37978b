"""A step of an engine operator by operator: what each kernel and each exchange takes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Collective
from xe_sizer.laws.network import exchange_times
from xe_sizer.laws.operator_time import NETWORK, OperatorCost, operator_work, sizes_of
from xe_sizer.serving.step import EXCHANGE_PARTS, KERNEL_PARTS

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.laws.operator_time import OperatorWork
    from xe_sizer.serving.step import EngineStep, StepTime


@frozen
class _At:
    """The point of a step that is looked at."""

    time: StepTime

    def one(self, value: Array) -> float:
        """A figure of all points of the step, at the one."""
        return float(self.time.picked(value)[0])


def operator_costs(time: StepTime) -> tuple[OperatorCost, ...]:
    """Every operator of a step, in all layers of the fullest stage.

        seconds = layers on the stage x law

    The seconds sum to the parts of the step but the host's and those between pipeline stages.

    Parameters
    ----------
    time : a step; its first point is looked at

    Returns
    -------
    tuple of OperatorCost, in the order in which they run [s], [FLOP], [bytes]

    Source: `laws.operator_work.operator_work` and `laws.exchange_time.exchange_times`.
    """
    step, at = time.step, _At(time)
    groups = ((step.layers, step.imbalance), (step.ends, np.ones(1)))
    return tuple(cost for operators, longer in groups for cost in _of_group(step, at, operators, longer))


def _of_group(step: EngineStep, at: _At, operators: tuple[Operator, ...], longer: Array) -> Iterator[OperatorCost]:
    """longer : how much longer kernels take where stages differ [-]"""
    works = {id(work.operator): work for work in operator_work(operators, step.job.device, backward=False)}
    for operator in operators:
        if not isinstance(operator, Collective):
            yield _kernel(works[id(operator)], at, longer)
        elif operator.group in EXCHANGE_PARTS and not step.job.efficiency.hides_exchanges:
            yield _exchange(step, at, operator)


def _kernel(work: OperatorWork, at: _At, longer: Array) -> OperatorCost:
    operator = work.operator
    seconds = at.one(longer * work.seconds[0])
    return OperatorCost(
        operator=operator,
        sizes={name: at.one(size) for name, size in sizes_of(operator).items()},
        times=at.one(longer * operator.layers),
        flops=at.one(longer * work.flops[0]),
        moved_bytes=at.one(longer * work.moved_bytes[0]),
        parts={KERNEL_PARTS[at.time.step.kind(operator)].name: seconds} if seconds else {},
        bound=max(work.bounds_s, key=lambda name: at.one(work.bounds_s[name])),
    )


def _exchange(step: EngineStep, at: _At, operator: Collective) -> OperatorCost:
    factor = step.job.engine.efficiency.collectives
    times = exchange_times((operator,), step.rank, step.job.network, factor, backward=False)
    seconds = at.one(times[operator.group][0])
    message = sum((at.one(size) for _, size in operator.forward), 0.0)
    return OperatorCost(
        operator=operator,
        sizes={name: at.one(size) for name, size in sizes_of(operator).items()},
        times=operator.layers,
        flops=0.0,
        moved_bytes=operator.layers * message,
        parts={EXCHANGE_PARTS[operator.group].name: seconds} if seconds else {},
        bound=NETWORK,
    )
