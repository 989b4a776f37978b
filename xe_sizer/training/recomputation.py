"""How many of a stage's layers are recomputed as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import as_array
from xe_sizer.training.layout import FULL
from xe_sizer.training.stages import stages_of

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


def recomputed_layers_share(job: Job, layouts: Layouts) -> Array:
    """Share of the layers of a stage that run again in the backward from their input alone.

        share = min(recomputed layers / layers of the stage, 1)      full recomputation; all where no number is given
        share = 0                                                    else

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,) [-]

    Source: Megatron-LM's recompute-num-layers by block, which counts the layers of a pipeline stage
    (megatron/core/transformer/transformer_block.py, _checkpointed_forward); the others keep all they compute.
    """
    full: Array = as_array(layouts.recompute == FULL)
    if job.recompute_layers is None:
        return full
    return np.asarray(
        full * np.minimum(job.recompute_layers / stages_of(job.model.layers, job.split, layouts).fullest, 1.0)
    )
