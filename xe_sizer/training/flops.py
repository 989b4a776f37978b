"""FLOPs of one micro-batch on one rank: what the training needs, and what recomputation adds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from xe_sizer.graph.operators import Array, Attention, Matmul, Operator
from xe_sizer.training.layout import FULL, SELECTIVE, Layouts

ATTENTION_PASSES = 3.0  # forward, and a backward of two products for each of the forward's


def needed_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of forward and backward over all layers that contain the operators [FLOP]."""
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul):
            total = total + op.layers * (op.forward_flops + op.backward_flops)
        elif isinstance(op, Attention):
            total = total + op.layers * ATTENTION_PASSES * op.forward_flops
    return total


def recomputed_flops(operators: Iterable[Operator], layouts: Layouts) -> Array:
    """FLOPs of the forward that runs again: whole layers, their attention core, or nothing [FLOP]."""
    products, attention = np.zeros(len(layouts)), np.zeros(len(layouts))
    for op in operators:
        if isinstance(op, Matmul):
            products = products + op.layers * op.forward_flops
        elif isinstance(op, Attention):
            attention = attention + op.layers * op.forward_flops
    return np.select(
        [layouts.recompute == FULL, layouts.recompute == SELECTIVE], [products + attention, attention], 0.0
    )
