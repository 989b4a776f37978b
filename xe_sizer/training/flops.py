"""FLOPs of one micro-batch on one rank: what the training needs, and what recomputation adds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from xe_sizer.graph.operators import Array, Attention, Matmul, Operator, Scan, recomputed_share
from xe_sizer.training.layout import FULL, SELECTIVE, Layouts

ATTENTION_PASSES = 3.0  # forward, and a backward of two products for each of the forward's


def needed_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of forward and backward over all layers that contain the operators [FLOP]."""
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul):
            total = total + op.layers * (op.forward_flops + op.backward_flops)
        elif isinstance(op, Attention | Scan):
            total = total + op.layers * ATTENTION_PASSES * op.forward_flops
    return total


def forward_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of the forward alone over all layers that contain the operators [FLOP]."""
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            total = total + op.layers * op.forward_flops
    return total


def recomputed_flops(operators: Iterable[Operator], layouts: Layouts, selective: str) -> Array:
    """FLOPs of the forward that runs again: whole layers, what the stack selects, or nothing [FLOP]."""
    everything, selected = np.zeros(len(layouts)), np.zeros(len(layouts))
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            everything = everything + op.layers * op.forward_flops
            selected = selected + recomputed_share(op, selective) * op.layers * op.forward_flops
    return np.select([layouts.recompute == FULL, layouts.recompute == SELECTIVE], [everything, selected], 0.0)
