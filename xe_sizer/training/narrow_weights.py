"""Copies of weights in 8 or 4 bit that products use, beside the 16-bit weights that learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.laws.parts import part
from xe_sizer.training.moments import spread

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.tensors import Tensors


def _each_bytes(tensors: Tensors) -> float:
    """Copies of an element of a linear weight that learns [bytes]."""
    casts, states = tensors.job.device.casts, tensors.job.stack.states
    return 0.0 if casts is None or states.narrow_parameters else casts.kept_weight * tensors.base


@part(
    "narrow copies of weights",
    "linear weights on the rank x bytes of their rows and columns in 8 or 4 bit",
    "Transformer Engine pytorch/module/base.py, get_weight_workspace, kept from the first micro-batch on",
    lambda tensors: _each_bytes(tensors) > 0,
)
def narrow_copies(tensors: Tensors) -> Array:
    """Zero where layers are gathered, since a layer that is given back takes its copies along."""
    kept = 1.0 - tensors.gathers
    return spread((tensors.held.linear + tensors.held.experts) * _each_bytes(tensors) * kept)
