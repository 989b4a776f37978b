"""The pipeline schedule: bubble, imbalance and transfers between stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.laws.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.training.layout import SCHEDULES

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts

# Times that the weight gradients of a stage fill what its neighbours would wait, by SCHEDULES (arXiv:2401.10241).
DEFERRED = np.array([0.0, 2.0, 3.0])


@frozen
class Pipeline:
    """Seconds of one optimizer step, shape (layout,): idle time and transfers that are not hidden."""

    bubble_s: Array
    transfer_s: Array


def pipeline(job: Job, layouts: Layouts, shapes: RankShapes, stage_s: Array, weight_s: Array) -> Pipeline:
    """Idle time and transfers of (interleaved) 1F1B and of schedules that put weight gradients into the bubble.

        bubble = sum over the stages but the slowest of t / vpp      1F1B; (pp - 1) t / vpp with equal stages
        bubble = sum over the stages but the slowest of max(t - D W, 0)      ZB-H1: D = 2; ZB-V: D = 3
        transfers = (2 + r) vpp grad_accum x one send of a boundary tensor x (1 - hidden share)

    The slowest stage works for grad_accum t_max; before and after it the pipeline fills and drains. Zero bubble: weight
    gradients W wait, with F + B + W = t; ZB-H1 needs the memory of 1F1B, ZB-V runs two chunks a stage, there and back.
    Each micro-batch crosses every boundary of its rank once a chunk in each direction, and once more forwards in each
    of r passes through frozen weights.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    shapes : of the ranks; the boundary tensor is the hidden state of one micro-batch
    stage_s, weight_s : t and W, time of a micro-batch on the first, last and a middle stage, and the part of it that
        weight gradients take, shape (3, layout) [s]

    Returns
    -------
    Pipeline, shape (layout,) [s]

    Source: Narayanan et al. 2021 (arXiv:2104.04473); zero bubble (arXiv:2401.10241).
    """
    pp, vpp = as_array(layouts.pp), as_array(layouts.vpp)
    waits = np.maximum(stage_s - DEFERRED[layouts.schedule] * weight_s, 0.0)
    slowest = np.argmax(stage_s, axis=0)
    whole = waits[0] + waits[1] + np.maximum(pp - 2.0, 0.0) * waits[2]
    shared = np.where(layouts.schedule == SCHEDULES.index("1f1b"), vpp, 1.0)  # the V has two chunks, and counts them
    bubble_s = np.where(pp > 1, (whole - waits[slowest, np.arange(len(layouts))]) / shared, 0.0)
    inputs = shapes.inputs
    message = shapes.spread(inputs.rank.resident_tokens * job.model.hidden * inputs.element_bytes)
    inside = as_array(layouts.gpus) <= job.network.node_ranks  # else some boundary lies between nodes
    each_s = collective_time_s(
        POINT_TO_POINT, message, np.where(pp > 1, 2.0, 1.0), np.where(inside, 2.0, 1.0), job.network
    )
    crossings = (2.0 + job.method.frozen_forwards) * vpp * as_array(layouts.grad_accum)
    transfer_s = crossings * each_s * (1.0 - job.stack.overlap.pipeline)
    return Pipeline(bubble_s, transfer_s)
