"""What the operators of an engine's step are made of: sizes of the fullest rank, kernels, and bytes of an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.inputs import GraphInputs, Learning
from xe_sizer.graph.operators import RankShape, as_array

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Kernels
    from xe_sizer.serving.job import ServingJob
    from xe_sizer.serving.layout import ReplicaLayouts

NOTHING_LEARNS = Learning(base=False)


def of_the_fullest(sequences: Array, groups: Array) -> Array:
    """Sequences of the fullest group.

        fullest = max(sequences / groups, min(sequences, 1))

    Parameters
    ----------
    sequences : of all groups [-]
    groups : attention ranks, and stages that work at the same time [-]

    Returns
    -------
    ndarray of float, shape that both broadcast to [-]

    Source: own derivation: a sequence is not cut, so that with fewer of them than groups some groups are idle.
    """
    return np.asarray(np.maximum(sequences / groups, np.minimum(sequences, 1.0)))


def step_inputs(
    job: ServingJob,
    placements: ReplicaLayouts,
    tp: Array,
    batch: Array,
    sequence: ArrayLike,
    past: ArrayLike,
    kernels: Kernels,
) -> GraphInputs:
    """Inputs of the operators of sequences alike, on the fullest rank of each placement.

        sequence parallelism, context parallelism: none

    Parameters
    ----------
    job, placements : the job, and placements that broadcast with the sizes
    tp : tensor-parallel ranks, of the shape of the points [-]
    batch, sequence, past : sequences of a group, tokens of each that are processed, and tokens before them [-]
    kernels : of the engine

    Returns
    -------
    GraphInputs, shape (points,)

    Source: placement of the engines' ranks; `NarrowKernel` for weights that are widened in memory.
    """
    one = np.ones(tp.shape)
    rank = RankShape(
        batch=batch * one,
        sequence=as_array(sequence) * one,
        tp=tp * one,
        cp=one,
        ep=as_array(placements.ep) * one,
        expert_tp=as_array(placements.expert_tp) * one,
        sequence_parallel=0.0 * one,
        past=as_array(past) * one,
    )
    widened = _widening_bytes(job, rank)
    return GraphInputs(
        model=job.model,
        rank=rank,
        kernels=kernels,
        learning=NOTHING_LEARNS,
        element_bytes=job.element_bytes,
        weight_forward_bytes=widened,
        weight_backward_bytes=0.0 * one,
        residual_element_bytes=job.element_bytes,
        cached_element_bytes=job.cached_element_bytes,
    )


def _widening_bytes(job: ServingJob, rank: RankShape) -> Array:
    """Traffic per weight of formats that are widened in memory before the product; few rows run fused [bytes]."""
    if not job.scheme.weight_only or job.efficiency.fixed:
        return np.zeros(rank.tp.shape)
    narrow = job.engine.narrow_kernel(job.scheme.weights)
    return np.asarray(narrow.traffic_bytes * (rank.tokens >= narrow.widened_rows), dtype=np.float64)
