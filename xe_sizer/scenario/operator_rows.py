"""The operators of a step as an answer shows them, alike for training and for serving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xe_sizer.result.common import OperatorCost

if TYPE_CHECKING:
    from xe_sizer.laws import operator_work


def operator_rows(costs: Iterable[operator_work.OperatorCost], step_s: float) -> tuple[OperatorCost, ...]:
    """Each operator with its share of the step, in the order in which they run. step_s : of the whole step [s]"""
    return tuple(
        OperatorCost(
            name=cost.operator.name,
            module=cost.operator.module,
            sizes=cost.sizes,
            times=cost.times,
            flops=cost.flops,
            bytes=cost.moved_bytes,
            seconds=cost.seconds,
            share=cost.seconds / step_s if step_s else 0.0,
            bound=cost.bound,
            parts=cost.parts,
        )
        for cost in costs
    )
