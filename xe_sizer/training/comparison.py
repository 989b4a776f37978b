"""Jobs that compare the states of sequences with each other: how many, and what ranks exchange for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import ALL_GATHER, REDUCE_SCATTER, collective_time_s
from xe_sizer.laws.parts import part

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.methods.method import Compared
    from xe_sizer.training.step import Step


def queries_and_candidates(compared: Compared, layouts: Layouts) -> tuple[Array, Array]:
    """Queries of a micro-batch of a rank, and the passages that each is compared with, shape (layout,) [-].

        queries = micro-batch
        candidates = micro-batch (1 + hard negatives) x (accumulation, where gradients are cached) x (dp, across GPUs)

    Parameters
    ----------
    compared : what is compared with what
    layouts : micro-batch, accumulation and dp, shape (layout,) [-]

    Returns
    -------
    (queries, candidates), shape (layout,) [-]

    Source: MultipleNegativesRankingLoss (gather_across_devices) and its cached form in sentence-transformers.
    """
    queries = as_array(layouts.micro_batch)
    of_step = as_array(layouts.grad_accum) if compared.cached else 1.0
    everywhere = as_array(layouts.dp) if compared.across_gpus else 1.0
    return queries, queries * (1.0 + compared.hard_negatives) * of_step * everywhere


@part(
    "gathered states",
    "all-gather of the states that queries are compared with, and reduce-scatter of their gradients",
    "collective laws; sentence-transformers",
)
def gathered_states(step: Step) -> Array:
    """None where every GPU compares its own sequences alone."""
    job, layouts, compared = step.job, step.layouts, step.job.method.compared
    if compared is None or not compared.across_gpus:
        return np.zeros(len(layouts))
    _, candidates = queries_and_candidates(compared, layouts)
    message = candidates * job.model.hidden * job.element_bytes
    ranks = as_array(layouts.dp)
    per_node = np.clip(job.network.node_ranks // (layouts.tp * layouts.cp), 1, ranks)
    both_s = sum(
        collective_time_s(operation, message, ranks, per_node, job.network)
        for operation in (ALL_GATHER, REDUCE_SCATTER)
    )
    times = np.ones(len(layouts)) if compared.cached else as_array(layouts.grad_accum)
    return np.where(ranks > 1, times * both_s / job.stack.efficiency.collectives, 0.0)
