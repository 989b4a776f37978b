"""Kernels that the host launches for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import Attention, Collective, Matmul, MemoryBound, Scan

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator

    Messages = tuple[tuple[str, Array], ...]

# What the host does for one expert's product in Transformer Engine's GroupedLinear, in launches: views and quantisers
# of its slice, the cached weight, the product on one of four streams; backward also hook and buffer of the gradient.
# Fitted to Qwen3-30B-A3B on B200 (Megatron Bridge 25.11, micro-batch 1): 9.2 ms for a layer with 16 experts on a rank.
SIDE_BY_SIDE_LAUNCHES = (15.0, 20.0)


def launches(operator: Operator) -> tuple[Array, Array]:
    """Kernels that one forward and one backward of the operator launch.

        launches = 1, and one for each gradient      matrix products, times copies where they are apart
        launches = 15, and 20 for each gradient      of every product that runs beside others of its group
        launches = 1, 3; eager 5, 8                  attention, of each block of keys
        launches = products + 1, 2.5 products        scans
        launches = messages that are not empty       collectives

    Memory-bound operators state theirs. Where an operator has no rows, moves nothing or sends nothing, nothing is
    launched: an operator stands in the graph for all layouts, also for those that have no use for it.

    Parameters
    ----------
    operator : of one layer

    Returns
    -------
    (forward, backward), ndarrays of float that broadcast to shape (rank shape,) [-]

    Source: own count of the kernels of PyTorch, of the fused attention kernels and of the eager modules of Hugging
    Face.
    """
    if isinstance(operator, Matmul):
        each = SIDE_BY_SIDE_LAUNCHES if operator.apart and operator.grouped else (1.0, 1.0)
        copies = operator.copies if operator.apart else 1.0
        gradients = float(operator.input_gradient) + float(operator.weight_gradient)
        return _where(operator.m, each[0] * copies), _where(operator.m, each[1] * gradients * copies)
    if isinstance(operator, Attention):
        each = (5.0, 8.0) if operator.kernel == "eager" else (1.0, 3.0)
        blocks = 1.0 if operator.blocks is None else operator.blocks
        return _where(operator.batch, each[0] * blocks), _where(operator.batch, each[1] * blocks)
    if isinstance(operator, Scan):
        products = len(operator.products)
        return _where(operator.state_bytes, products + 1.0), _where(operator.state_bytes, 2.5 * products)
    if isinstance(operator, MemoryBound):
        return (
            _where(operator.forward_bytes, operator.forward_launches),
            _where(operator.backward_bytes, operator.backward_launches),
        )
    if isinstance(operator, Collective):
        return _sent(operator.forward), _sent(operator.backward)
    raise TypeError(f"no launch count for {type(operator).__name__}")


def _sent(messages: Messages) -> Array:
    """How many of the messages are not empty [-]."""
    return np.asarray(sum((_where(message, 1.0) for _, message in messages), np.zeros(1)))


def _where(work: Array, launched: float | Array) -> Array:
    """The launches where there is any work."""
    return np.where(np.asarray(work) > 0, launched, 0.0)
