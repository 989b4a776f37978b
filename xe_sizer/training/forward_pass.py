"""Time of passes without a backward: evaluation, log-probabilities, values and rewards of many sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array
from xe_sizer.training.step import Step

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts

GATHERS_OF_A_STEP = 3.0  # counted: exchanges of sharded weights in a micro-batch: two gathers, and gradients reduced


def forward_pass_s(job: Job, layouts: Layouts, sequences: ArrayLike) -> Array:
    """Time of the forward alone of so many sequences, in micro-batches of the training.

        micro-batches = ceil(sequences / (dp x micro-batch))
        t = (micro-batches + pp - 1) x forward of the slowest stage + micro-batches x gathers

    A pipeline fills and empties once. Sharded weights are gathered once for each micro-batch.

    Parameters
    ----------
    job : that learns, or one of what stands beside it (`Job.beside`)
    layouts : of shape (layout,)
    sequences : of all replicas [-]

    Returns
    -------
    ndarray of float, shape (layout,), seconds [s]

    Source: operator and collective laws.
    """
    step = Step(job, layouts, job.sequences(layouts))
    micro_batches = np.ceil(as_array(sequences) / (layouts.dp * layouts.micro_batch))
    forward_s = np.max(step.stage.forward_s + step.stage.frozen_s, axis=0)
    gathered_s, sharded = np.zeros(len(layouts)), (layouts.zero == 3) & (layouts.data_ranks > 1)
    if np.any(sharded):
        exchange_s = step.sharded_exchange_s(np.zeros(len(layouts))) / as_array(layouts.grad_accum)
        gathered_s = np.where(sharded, exchange_s / GATHERS_OF_A_STEP, 0.0)
    return np.asarray((micro_batches + layouts.pp - 1.0) * forward_s + micro_batches * gathered_s)
