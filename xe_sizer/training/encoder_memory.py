"""What a GPU holds of images beside their encoder's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.laws.parts import part
from xe_sizer.training.encoder import encoder_activations
from xe_sizer.training.gradients import keeps_fresh_gradients
from xe_sizer.training.moments import BACKWARD_END, OPTIMIZER, PASSES, over_time

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.memory_parts import Tensors


@part(
    "image activations",
    "pixels, and what the encoder's layers and the projector keep until the end of the backward x micro-batches in "
    "flight, less the encoder's own gradients by then",
    "operator graph",
    lambda tensors: tensors.job.images is not None,
)
def encoder_kept(tensors: Tensors) -> Array:
    """The encoder runs first, so that its backward comes last, when all other gradients are there."""
    job, layouts, held, sizes = tensors.job, tensors.layouts, tensors.held, tensors.sizes
    one = encoder_activations(job, layouts, sizes.fresh_gradient, keeps_fresh_gradients(job, layouts))
    if one is None:
        return np.zeros((1, 1, 1))
    on_first = np.stack([np.ones(len(layouts)), (layouts.pp == 1).astype(float)])
    fresh = held.parts_learning * sizes.gradient / tensors.shards.gradients
    kept, pixels = (one.kept + one.pixels) * tensors.in_flight * on_first, one.pixels * on_first
    last = np.maximum(kept - fresh, pixels) + one.backward_peak * on_first
    return over_time((PASSES, kept), (BACKWARD_END, last), (OPTIMIZER, pixels))
