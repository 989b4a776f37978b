"""FLOPs of one micro-batch on one rank: what the training needs, and what recomputation adds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import Attention, Matmul, Scan
from xe_sizer.training.layout import SELECTIVE

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.training.layout import Layouts

ATTENTION_PASSES = 3.0  # counted: forward, and a backward of two products for each of the forward's


def needed_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of forward and backward over all layers that contain the operators, whatever the stack wastes.

        F = sum of layers (forward + input gradient + weight gradient, where they are needed)      matrix products
        F = sum of layers x 3 x forward                                                            attention and scans

    Parameters
    ----------
    operators : of one rank and one micro-batch; sizes broadcast to shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [FLOP]

    Source: model FLOPs as in PaLM (arXiv:2204.02311, appendix B).
    """
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul):
            total = total + op.layers * (op.forward_flops + op.backward_flops)
        elif isinstance(op, Attention | Scan):
            total = total + op.layers * ATTENTION_PASSES * op.forward_flops
    return total


def forward_flops(operators: Iterable[Operator]) -> Array:
    """FLOPs of one forward over all layers that contain the operators.

        F = sum of layers x forward

    Parameters
    ----------
    operators : of one rank and one micro-batch; sizes broadcast to shape (rank shape,)

    Returns
    -------
    ndarray of float, shape (rank shape,) [FLOP]

    Source: definition; a multiply and an add are two.
    """
    total: Array = np.zeros(1)
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            total = total + op.layers * op.forward_flops
    return total


def recomputed_flops(operators: Iterable[Operator], layouts: Layouts, whole: Array) -> Array:
    """FLOPs of the forward that runs again: whole layers, what the stack selects, or nothing.

        F = whole x sum of layers x forward            full
        F = sum of layers x share x forward            selective

    Parameters
    ----------
    operators : of the layers; sizes of shape (layout,)
    layouts : their recomputation, shape (layout,)
    whole : share of the layers that full recomputation runs again, shape (layout,) [-]

    Returns
    -------
    ndarray of float, shape (layout,) [FLOP]

    Source: Korthikanti et al. 2022 (arXiv:2205.05198); `graph.selective.with_recomputation`.
    """
    everything, selected = np.zeros(len(layouts)), np.zeros(len(layouts))
    for op in operators:
        if isinstance(op, Matmul | Attention | Scan):
            everything = everything + op.layers * op.forward_flops
            selected = selected + op.again * op.layers * op.forward_flops
    return np.where(layouts.recompute == SELECTIVE, selected, whole * everything)
