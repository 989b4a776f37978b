"""How many of a stage's layers leave what they keep for the backward in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts


def offloaded_layers(job: Job, layouts: Layouts, layers: Array) -> Array:
    """Layers of a stage whose activations wait in host memory.

        offloaded = min(n, layers)      where activations are offloaded; all where no number is given
        offloaded = 0                   else

    Parameters
    ----------
    job, layouts : the job, which says n, and layouts of shape (layout,)
    layers : of a stage, shape (layout,) or (stage, layout) [-]

    Returns
    -------
    ndarray of float, shape of `layers` [-]

    Source: Megatron-LM's --cpu-offloading-num-layers (core/transformer/transformer_block.py, get_cpu_offload_context of
    Transformer Engine); OffloadActivations of torchtune and TRL offload all layers.
    """
    most = layers if job.offload_layers is None else np.minimum(layers, float(job.offload_layers))
    return np.where(layouts.hosts_activations, most, 0.0)
