"""How the layers of a model are spread over pipeline stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.operators import as_array

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array


def layers_per_stage(layers: ArrayLike, pp: ArrayLike) -> Array:
    """Layers of the fullest stage.

        layers = ceil(L / pp)

    Parameters
    ----------
    layers : L of the model, or those of one kind [-]
    pp : pipeline stages [-]

    Returns
    -------
    ndarray of float, shape that both broadcast to [-]

    Source: own derivation: stages of whole layers; the fullest decides memory and time.
    """
    return np.asarray(np.ceil(as_array(layers) / as_array(pp)))
