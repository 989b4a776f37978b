"""FRoD: a sparse matrix between two dense ones that the weights of all layers share (doi:10.1609/aaai.v40i31.39813)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.graph.parameters import adapted_weights, layer_weights
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

INDEX_BYTES = 8.0  # published: peft keeps the places of the entries as int64 (frod_s_indices)
SPARSE_RATE = 0.01  # published: share of the entries that learn (peft's default)


@frozen(eq=True)
class Rotated(AdapterForm):
    """(x V) (S + diag(l)) U^T in place of x W^T: elements = k + share of k^2. V (k by k) is shared by layers; U is not.

    All products run in the type of the model; x V is kept, and S, dense for its product.
    Source: peft (tuners/frod/layer.py, Linear.forward).
    """

    reads_input = False
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """The diagonal, and the entries of S [-]."""
        return k + np.floor(k * k * SPARSE_RATE)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """U in 16 bit, and two indices of 8 bytes of each entry [bytes]."""
        return SIXTEEN_BIT * n * k + 2.0 * INDEX_BYTES * np.floor(k * k * SPARSE_RATE)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The product with V, that with S, the scale and the sum, and the product with U."""
        square, passed = at.k * at.k * at.element_bytes, at.tokens * at.k * at.element_bytes
        yield at.product("V", at.tokens, at.k, at.k, learns=False, in_base=True)
        yield at.product("S", at.tokens, at.k, at.k, passed, computed_bytes=square, in_base=True)
        yield at.kernels("scale", 5.0 * passed + 2.0 * square, 9.0 * passed + square, (8.0, 8.0), 0.0, 2.0 * passed)
        yield at.product("U", at.tokens, at.n, at.k, learns=False, in_base=True)


@register("frod", label="FRoD", settings=("lora",))
def frod(model: ModelShape, options: AdapterOptions) -> Trained:
    """One V for each projection that has adapters, whatever the layer."""
    known = {weight.name: weight for kind, _ in model.layer_kinds for weight in layer_weights(model, kind)}
    inputs = [known[adapted_weights(name)[0]].inputs for name in resolve_targets(model, options.lora_targets)]
    return on_weights(model, options, Rotated(), added_bytes=SIXTEEN_BIT * sum(side * side for side in inputs))
