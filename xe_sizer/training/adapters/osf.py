"""OSF: the smaller singular directions of each weight learn, the larger stay (Nayak et al. 2025, arXiv:2504.07097)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

PRESERVED = 0.5  # published: share of the directions that stay (peft's default)


@frozen(eq=True)
class Subspace(AdapterForm):
    """x (V)^T (U S)^T with all of V and U: of m = min(n, k) directions half learn: elements = h (n + k + 1), h = m / 2.

    Both halves of U S and of V are laid side by side in every forward, and kept in float32; the weight's own product
    runs too. Buffers: what the learning half was at the start, and the half that stays.
    Source: peft (tuners/osf/layer.py, Linear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """Directions that learn: two vectors and a value each [-]."""
        return np.ceil(np.minimum(n, k) * PRESERVED) * (n + k + 1)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The start of what learns, and the longer vectors of the rest where sides differ, in float32 [bytes]."""
        half = np.minimum(n, k) * PRESERVED
        return FLOAT32 * half * (n + k + 1.0 + np.where(n == k, 0.0, np.maximum(n, k)))

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both factors laid out, two products of the tokens, and the sum."""
        smaller = np.minimum(at.n, at.k)
        left, right = at.n * smaller * at.size, smaller * at.k * at.size
        yield at.kernels("laid out", 4.0 * left + 2.0 * right, 4.0 * left + right, (5.0, 4.0), 0.0, left + right)
        yield at.product("V", at.tokens, smaller, at.k, at.input_bytes, computed_bytes=right)
        yield at.product("U S", at.tokens, at.n, smaller, at.tokens * smaller * at.size + left, computed_bytes=0.0)
        yield at.sum()


@register("osf", label="OSF", settings=("lora",))
def osf(model: ModelShape, options: AdapterOptions) -> Trained:
    """Half of each weight's directions."""
    return on_weights(model, options, Subspace())
