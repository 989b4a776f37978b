"""Moments of a training step at which a GPU may hold the most, and which parts of memory are there at each."""

from __future__ import annotations

import numpy as np

from xe_sizer.graph.operators import Array

MOMENTS = (
    "end of forward",
    "loss",
    "backward of the last layer",
    "backward of the first layer",
    "end of backward",
    "optimizer step",
)


def _during(*moments: str) -> Array:
    """1 at the named moments, else 0, shape (moment, 1)."""
    return np.array([[float(moment in moments)] for moment in MOMENTS])


FORWARD, LOSS, LAST_LAYER, FIRST_LAYER, BACKWARD_END, OPTIMIZER = (_during(moment) for moment in MOMENTS)
ALL_ACTIVATIONS = FORWARD + LOSS + LAST_LAYER
LAYERS_BACKWARD = LAST_LAYER + FIRST_LAYER
PASSES = ALL_ACTIVATIONS + FIRST_LAYER


def spread(per_stage: Array) -> Array:
    """(stage, layout) to (stage, 1, layout)."""
    return per_stage[:, None, :]
