"""Kernels that the host launches for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.graph.operators import Attention, Collective, Matmul, MemoryBound, Scan

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator

# What the host does for one expert's product in Transformer Engine's GroupedLinear, in launches: views and quantisers
# of its slice, the cached weight, the product on one of four streams; backward also hook and buffer of the gradient.
# Fitted to Qwen3-30B-A3B on B200 (Megatron Bridge 25.11, micro-batch 1): 9.2 ms for a layer with 16 experts on a rank.
SIDE_BY_SIDE_LAUNCHES = (15.0, 20.0)


def launches(operator: Operator) -> tuple[float | Array, float | Array]:
    """Kernels that one forward and one backward of the operator launch.

        launches = 1, and one for each gradient      matrix products, times copies where they are apart
        launches = 15, and 20 for each gradient      of every product that runs beside others of its group
        launches = 1, 3; eager 5, 8                  attention, of each block of keys
        launches = products + 1, 2.5 products        scans

    Memory-bound operators and collectives state theirs.

    Parameters
    ----------
    operator : of one layer

    Returns
    -------
    (forward, backward), numbers or ndarrays of float of shape (rank shape,) [-]

    Source: own count of the kernels of PyTorch, of the fused attention kernels and of the eager modules of Hugging
    Face.
    """
    if isinstance(operator, Matmul):
        backward = float(operator.input_gradient) + float(operator.weight_gradient)
        if operator.apart and operator.grouped:
            return SIDE_BY_SIDE_LAUNCHES[0] * operator.copies, SIDE_BY_SIDE_LAUNCHES[1] * backward * operator.copies
        return (operator.copies, backward * operator.copies) if operator.apart else (1.0, backward)
    if isinstance(operator, Attention):
        forward, backward = (5.0, 8.0) if operator.kernel == "eager" else (1.0, 3.0)
        return (
            (forward, backward) if operator.blocks is None else (forward * operator.blocks, backward * operator.blocks)
        )
    if isinstance(operator, Scan):
        return len(operator.products) + 1.0, 2.5 * len(operator.products)
    if isinstance(operator, MemoryBound):
        return operator.forward_launches, operator.backward_launches
    if isinstance(operator, Collective):
        return float(len(operator.forward)), float(len(operator.backward))
    raise TypeError(f"no launch count for {type(operator).__name__}")
