"""Newton-Schulz iterations that make a matrix's momentum orthogonal, as Muon does once a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import adapters_on
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.parameters import layer_weights
from xe_sizer.laws.collectives import ALL_GATHER, collective_time_s
from xe_sizer.laws.matmul import matmul_time_s
from xe_sizer.training.stages import stages_of
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.graph.weight import Weight
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


@frozen
class _Matrices:
    """Matrices of one size that learn: rows and columns [-], and how many the layers of the model have.

    experts, split : whether they are of experts, and whether tensor-parallel ranks hold parts of them
    """

    rows: int
    columns: int
    count: float
    experts: bool = False
    split: bool = False


def newton_schulz_time_s(rows: int, columns: int, iterations: int, device: Device) -> float:
    """Time to make one matrix orthogonal on one accelerator, in 16 bit.

        X <- a X + (b G + c G G) X,  G = X X^T
        t = iterations (t(m, m, n) + t(m, m, m) + t(m, n, m)),  m = min(rows, columns), n = max(rows, columns)

    An iteration is three products: G of 2 m^2 n FLOP, its square of 2 m^3, and the last of 2 m^2 n.

    Parameters
    ----------
    rows, columns : of the matrix [-]
    iterations : usually 5 [-]
    device : whose law of 16-bit products t(m, n, k) is

    Returns
    -------
    float, seconds [s], one number: shape ()

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; products by the accelerator's law.
    """
    m, n = sorted((rows, columns))
    law, peak = device.scan_matmul, device.attention_peak_flops_per_s
    wide, inner = np.array([m, m, n]), np.array([n, m, m])  # columns of the three, and what they sum over
    seconds = matmul_time_s(m, wide, inner, law, peak, device.bandwidth_bytes_per_s, SIXTEEN_BIT)
    return iterations * float(seconds.sum())


def orthogonalisation_time_s(job: Job, layouts: Layouts) -> Array:
    """Time to make the matrices of the fullest stage orthogonal, once a step.

        t = sum over kinds of matrix of count / s t_ns + gather over s ranks + gather over tp ranks

    Whole matrices are gathered in 16 bit: over the tensor-parallel ranks, each of which then does the products, and
    over the s ranks that share the optimizer's states, which divide the matrices among themselves.

    Parameters
    ----------
    job : its optimizer says how many iterations there are, its method what learns
    layouts : of the ranks; ZeRO 1 and above shares the states

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: Distributed Muon of Liu et al. 2025 (arXiv:2502.16982); TensorParallelMuon of Megatron-Core, duplicated.
    """
    iterations = job.optimizer.newton_schulz_iterations
    total = np.zeros(len(layouts))
    if not iterations:
        return total
    sharded = layouts.zero >= 1
    stage_share = stages_of(job.model.layers, job.split, layouts).fullest / job.model.layers
    for matrices in _learning_matrices(job):
        group = as_array(layouts.expert_zero_ranks if matrices.experts else layouts.zero_ranks)
        share = np.where(sharded, group, 1.0)
        count = matrices.count * stage_share / (layouts.ep if matrices.experts else 1)
        once = newton_schulz_time_s(matrices.rows, matrices.columns, iterations, job.device)
        total = total + count / share * once + _gathering_s(job, layouts, matrices, count, share)
    return total


def orthogonalisation_bytes(job: Job) -> float:
    """Workspace of the products of the largest matrix that learns.

        bytes = 2 (2 m n + 2 m^2)

    In 16 bit: the gathered matrix and its next iterate, of m rows and n columns, m <= n, and both products, G and G G.

    Parameters
    ----------
    job : its optimizer says whether there are products, its method what learns

    Returns
    -------
    float, workspace [bytes], one number: shape ()

    Source: own count of what Newton-Schulz iterations of torch.optim.Muon hold together.
    """
    if not job.optimizer.newton_schulz_iterations:
        return 0.0
    sizes = [sorted((matrices.rows, matrices.columns)) for matrices in _learning_matrices(job)]
    return max((SIXTEEN_BIT * 2.0 * (m * n + m * m) for m, n in sizes), default=0.0)


def _gathering_s(job: Job, layouts: Layouts, matrices: _Matrices, count: Array, share: Array) -> Array:
    """Gathering `count` whole matrices from the ranks that hold parts of them, shape (layout,) [s]."""
    tp = as_array(layouts.expert_ranks if matrices.experts else layouts.tp) if matrices.split else np.ones(len(layouts))
    node = job.network.node_ranks
    held_bytes = count * float(matrices.rows * matrices.columns) * SIXTEEN_BIT
    over_states = collective_time_s(ALL_GATHER, held_bytes / tp, share, np.clip(node // tp, 1, share), job.network)
    over_tensors = collective_time_s(ALL_GATHER, held_bytes / share, tp, np.minimum(tp, node), job.network)
    return np.asarray((over_states + over_tensors) / job.stack.efficiency.collectives)


def _learning_matrices(job: Job) -> Iterator[_Matrices]:
    """Every kind of matrix in the layers that learns; embedding and head are not among them."""
    learning = job.method.learning
    for kind, layers in job.model.layer_kinds:
        weights = layer_weights(job.model, kind)
        if learning.base:
            yield from (_of_weight(weight, layers) for weight in weights if weight.kind == "linear")
        for adapter in adapters_on(weights, learning.adapters):
            yield from (_Matrices(rows, columns, layers) for rows, columns in adapter.matrices)


def _of_weight(weight: Weight, layers: int) -> _Matrices:
    count = float(layers * weight.copies)
    return _Matrices(weight.inputs, weight.outputs, count, weight.split == "expert", weight.split != "replicated")
