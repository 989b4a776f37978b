"""Memory of an encoder-decoder at the moment between its halves, when the backward has left the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.weights import layer_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Array
    from xe_sizer.training.activations import Activations
    from xe_sizer.training.sharding import Census


def encoder_share(model: ModelShape) -> float:
    """Parameters of the encoder's layers over those of all layers [-]; 0 without an encoder before a decoder.

        share = sum over layers of the encoder of their parameters / sum over all layers

    Parameters
    ----------
    model : its layers

    Returns
    -------
    float [-]

    Source: definition.
    """
    sizes = [(kind, count * sum(w.parameters for w in layer_weights(model, kind))) for kind, count in model.layer_kinds]
    return sum(size for kind, size in sizes if kind.source) / sum(size for _, size in sizes)


def gradients_to_come(model: ModelShape, held: Census, waits: NDArray[np.bool_]) -> Array:
    """Elements of the layers whose backward has not begun at the last of its moments, shape (stage, layout) [-].

        elements = those of the first layer, or of the encoder's layers where that moment is between the halves

    Parameters
    ----------
    model : its layers
    held : elements of a rank before sharding, shape (stage, layout) [-]
    waits : where most is held between the halves, shape (stage, layout) [-]

    Returns
    -------
    ndarray of float, shape (stage, layout) [-]

    Source: own derivation from the order of the backward; traced.
    """
    layers = (held.mean_layer + held.mean_experts) * model.layers
    return np.where(waits, layers * encoder_share(model), held.whole_layer)


def encoder_waits(model: ModelShape, held: Census, saved: Activations, gradient_bytes: Array) -> NDArray[np.bool_]:
    """Whether a rank holds more when the backward reaches the encoder than when it reaches its first layer.

        waits = kept by the encoder - checkpoint > (elements of its layers - those of the first) x gradient bytes

    Parameters
    ----------
    model, held : layers, and elements of a rank, shape (stage, layout) [-]
    saved : what the layers keep, shape (layout,) [bytes]
    gradient_bytes : of an element that learns, and that the backward leaves, shape (layout,) [bytes]

    Returns
    -------
    ndarray of bool, shape (stage, layout) [-]

    Source: own derivation from the order of the backward; traced.
    """
    if not model.encoder_layers:
        return np.zeros(np.shape(held.linear), dtype=bool)
    everywhere = np.ones(np.shape(held.linear), dtype=bool)
    later, last = (gradients_to_come(model, held, waits) for waits in (everywhere, ~everywhere))
    return np.asarray(saved.source_kept - saved.checkpoint > (later - last) * gradient_bytes)
