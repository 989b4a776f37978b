"""The pipeline schedule: bubble, imbalance and transfers between stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import ALL_GATHER, POINT_TO_POINT, collective_time_s
from xe_sizer.training.schedules import HAS_OTHER_WORK, bubble_time_s
from xe_sizer.training.stages import stages_of

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.schedules import Passes


@frozen
class Pipeline:
    """Seconds of one optimizer step, shape (layout,): idle time and transfers that are not hidden."""

    bubble_s: Array
    transfer_s: Array


def pipeline(job: Job, layouts: Layouts, shapes: RankShapes, passes: Passes) -> Pipeline:
    """Idle time and transfers of a pipeline by its schedule.

        bubble = sum over the stages but the slowest of max(f F + b B + w W, 0), by the schedule's row
        transfers = w vpp grad_accum x (2 boundary + sum of r boundaries of frozen weights) x (1 - hidden share)
        boundary = send(b s h), or send(b s h / tp) + gather(b s h) over the tp ranks where they scatter it

    The slowest stage works for grad_accum (F + B + W); before and after it the pipeline fills and drains. Each
    micro-batch crosses every boundary of its rank once a chunk in each direction, and once more forwards in each of r
    passes through frozen weights. Stages between others have two boundaries: both are waited for (w = 2) where sends
    and receives are not paired. Nothing hides a transfer where a stage has one chunk and its passes follow one another.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks; the boundary tensor is the hidden state of one micro-batch
    passes : of a micro-batch on the first, last and a middle stage, shape (3, layout) [s]

    Returns
    -------
    Pipeline, shape (layout,) [s]

    Source: `training.schedules`.
    """
    pp, vpp = as_array(layouts.pp), as_array(layouts.vpp)
    bubble_s = bubble_time_s(
        layouts.schedule,
        pp,
        vpp,
        as_array(layouts.grad_accum),
        passes,
        stages_of(job.model.layers, job.split, layouts).middles,
    )
    waited = np.where((pp > 2) & (not job.stack.boundaries.paired), 2.0, 1.0)
    crossed_s = 2.0 * _boundary_s(job, layouts, shapes)
    for companion in job.method.passing:
        crossed_s = crossed_s + companion.forwards * _boundary_s(job.beside(companion), layouts, shapes)
    hidden = np.where(HAS_OTHER_WORK[layouts.schedule] | (layouts.vpp > 1), job.stack.overlap.pipeline, 0.0)
    transfer_s = waited * vpp * as_array(layouts.grad_accum) * crossed_s * (1.0 - hidden)
    return Pipeline(bubble_s, transfer_s)


def _boundary_s(job: Job, layouts: Layouts, shapes: RankShapes) -> Array:
    """One boundary tensor from stage to stage, shape (layout,) [s]; nothing without a pipeline."""
    inputs, tp, several = shapes.inputs, as_array(layouts.tp), layouts.pp > 1
    message = shapes.spread(inputs.rank.resident_tokens * job.model.hidden * inputs.element_bytes)
    inside = as_array(layouts.gpus) <= job.network.node_ranks  # else some boundary lies between nodes
    scattered = job.stack.boundaries.scattered & (layouts.tp > 1) & ~layouts.sequence_parallel.astype(bool)
    sent = message / np.where(scattered, tp, 1.0)
    send_s = collective_time_s(
        POINT_TO_POINT, sent, np.where(several, 2.0, 1.0), np.where(inside, 2.0, 1.0), job.network
    )
    ranks = np.where(scattered & several, tp, 1.0)
    gather_s = collective_time_s(ALL_GATHER, message, ranks, np.minimum(ranks, job.network.node_ranks), job.network)
    return send_s + gather_s
