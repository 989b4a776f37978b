"""Moments of a training step at which a GPU may hold the most, and which parts of memory are there at each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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


def over_time(*held: tuple[Array, Array]) -> Array:
    """Bytes at each moment of what is there at some of them.

        bytes(moment) = sum of the sizes that are there at the moment

    Parameters
    ----------
    held : moments as above, and sizes of shape (stage, layout) or (layout,) [bytes]

    Returns
    -------
    ndarray of float, shape (stage, moment, layout) [bytes]

    Source: definition.
    """
    total = np.zeros((2, len(MOMENTS), max(np.shape(size)[-1] for _, size in held)))
    for moments, size in held:
        for moment in np.flatnonzero(moments):
            total[:, moment] += size
    return total
