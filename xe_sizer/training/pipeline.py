"""The pipeline schedule: bubble, imbalance and transfers between stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xe_sizer.cost.collectives import POINT_TO_POINT, collective_time_s
from xe_sizer.graph.operators import Array, as_array
from xe_sizer.graph.transformer import GraphInputs
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Seconds of one optimizer step, shape (layout,): idle time and transfers that are not hidden."""

    bubble_s: Array
    transfer_s: Array


def pipeline(job: Job, layouts: Layouts, inputs: GraphInputs, stage_s: Array) -> Pipeline:
    """Idle time and transfers of (interleaved) 1F1B.

    The slowest stage works for grad_accum t_max; before and after it the pipeline fills and drains, which takes
    (sum over the other stages of t) / vpp. With equal stages that is the (pp - 1) t / vpp of Narayanan et al. 2021
    (arXiv:2104.04473). Each micro-batch crosses every boundary of its rank vpp times in each direction.

    Parameters
    ----------
    stage_s : micro-batch time on the first, last and a middle stage, shape (3, layout) [s]
    """
    pp, vpp = as_array(layouts.pp), as_array(layouts.vpp)
    slowest = stage_s.max(axis=0)
    whole = stage_s[0] + stage_s[1] + np.maximum(pp - 2.0, 0.0) * stage_s[2]
    bubble_s = np.where(pp > 1, (whole - slowest) / vpp, 0.0)
    rank = inputs.rank
    message = rank.resident_tokens * job.model.hidden * inputs.element_bytes
    inside = as_array(layouts.gpus) <= job.network.node_ranks  # else some boundary lies between nodes
    each_s = collective_time_s(
        POINT_TO_POINT, message, np.where(pp > 1, 2.0, 1.0), np.where(inside, 2.0, 1.0), job.network
    )
    crossings = 2.0 * vpp * as_array(layouts.grad_accum)
    transfer_s = crossings * each_s * (1.0 - job.stack.overlap.pipeline)
    return Pipeline(bubble_s, transfer_s)
