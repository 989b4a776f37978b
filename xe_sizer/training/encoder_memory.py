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
    from xe_sizer.training.tensors import Tensors


def _table_gradients(tensors: Tensors) -> Array:
    """Gradients that the backward of the token table makes, shape (stage, layout) [bytes].

    A tied table's second one, and the sum of both, stand beside the first.
    """
    job, layouts = tensors.job, tensors.layouts
    summed = job.model.tied_embeddings and not job.stack.states.gradients_persist
    copies = np.where(summed & (layouts.pp == 1), 2.0, keeps_fresh_gradients(job, layouts))
    size = tensors.base * tensors.sizes.gradient / tensors.shards.gradients
    return np.asarray(copies * tensors.held.embedding * size)


@part(
    "image activations",
    "pixels, and what the encoder's layers and the projector keep until the end of the backward x micro-batches in "
    "flight, less the encoder's own gradients by then",
    "operator graph",
    lambda tensors: tensors.job.images is not None,
)
def encoder_kept(tensors: Tensors) -> Array:
    """The encoder runs first, so that its backward comes last: all gradients but those of the token table are there.

    Source: autograd runs the latest node first, and models look the tokens up before they encode images; traced.
    """
    job, layouts, held, sizes = tensors.job, tensors.layouts, tensors.held, tensors.sizes
    one = encoder_activations(job, layouts, sizes.fresh_gradient, keeps_fresh_gradients(job, layouts))
    if one is None:
        return np.zeros((1, 1, 1))
    on_first = np.stack([np.ones(len(layouts)), (layouts.pp == 1).astype(float)])
    fresh = held.parts_learning * sizes.gradient / tensors.shards.gradients
    kept, pixels = (one.kept + one.pixels) * tensors.in_flight * on_first, one.pixels * on_first
    last = np.maximum(kept - fresh + one.backward_peak * on_first - _table_gradients(tensors), pixels)
    return over_time((PASSES, kept), (BACKWARD_END, last), (OPTIMIZER, pixels))
