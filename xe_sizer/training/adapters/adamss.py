"""AdaMSS: small updates in several subspaces of a weight (Zheng et al. 2025, NeurIPS, openreview 8ZdWmpYxT0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

INDEX_BYTES = 8.0  # published: peft keeps the place of each output as int64 (scatter_index)
SUBSPACES, RANK_OF_EACH = 5, 1  # published: of peft's defaults


@frozen(eq=True)
class Subspaces(AdapterForm):
    """Inputs onto r directions that stay, r_i of each of K subspaces from them, and their n / K outputs.

        elements = K r_i r + r_i n

    Source: peft (tuners/adamss/layer.py, Linear.forward).
    """

    rank: int

    tensors = 2 * SUBSPACES
    reads_input = False

    def elements(self, n: Size, k: Size) -> Size:
        """Both matrices of each subspace [-]."""
        return RANK_OF_EACH * (SUBSPACES * self.rank + n)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """The directions, in the type of the model, and where each output belongs [bytes]."""
        return SIXTEEN_BIT * self.rank * k + INDEX_BYTES * n

    def operators(self, at: Place) -> Iterator[Operator]:
        """The shared product, two for each subspace, and the outputs put in their places."""
        e, parts = at.element_bytes, float(SUBSPACES)
        latent, outputs = at.tokens * self.rank * e, at.tokens * at.n * e
        yield at.product("directions", at.tokens, self.rank, at.k, learns=False)
        yield at.product("A", at.tokens, RANK_OF_EACH, self.rank, latent, copies=parts)
        yield at.product("B", at.tokens, at.n / parts, RANK_OF_EACH, at.tokens * RANK_OF_EACH * parts * e, copies=parts)
        yield at.kernels("places", 8.0 * outputs, 5.0 * outputs, (5.0, 4.0), 0.0, 2.0 * outputs)


@register("adamss", label="AdaMSS", settings=("lora",), rank=100)
def adamss(model: ModelShape, options: AdapterOptions) -> Trained:
    """Five subspaces of rank one over the rank's directions."""
    return on_weights(model, options, Subspaces(options.lora_rank))
