"""Few entries of each weight: SHiRA (Bhardwaj et al. 2024, arXiv:2406.13175) and Super-Tuning (arXiv:2607.09287)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

SPARSITY = 0.99  # published: share of the entries that stay as they are (peft's default)
INT64 = 8.0  # defined: bytes of a 64-bit integer, with which torch looks entries up
TWO_INDICES, ONE_INDEX = 8.0, 4.0  # published: bytes of a row and a column, and of a place in the flat weight (peft)


@frozen(eq=True)
class Sparse(AdapterForm):
    """x (W + S)^T, S with few entries: elements = r (k + n), or `share` of n k where there is no rank.

    The sum is made in every forward in the weight's own type and kept; its gradient is as large as the weight, and the
    entries are taken out of it. The weight's own product is left out.
    Source: peft (tuners/shira/layer.py and tuners/supertuning/layer.py, Linear.forward).
    """

    rank: int = 0
    share: float = 0.0

    tensors = 1
    shares_input = True
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """Entries [-]."""
        return self.rank * (k + n) if self.rank else np.floor(n * k * self.share)

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Where the entries are [bytes]."""
        return self.elements(n, k) * (TWO_INDICES if self.rank else ONE_INDEX)

    def operators(self, at: Place) -> Iterator[Operator]:
        """The sum, and the product with it in the precision of the model."""
        weight, entries = at.n * at.k * at.element_bytes, self.elements(at.n, at.k) * (at.size + TWO_INDICES)
        wide = at.n * at.k * at.size * float(self.rank > 0)  # of the dense gradient, a cast
        # The sum is kept even where its input needs no gradient, and without a rank the places as 8-byte integers.
        places = INT64 * self.elements(at.n, at.k) * float(self.rank == 0)
        kept = weight + places
        yield at.kernels("entries", 2.0 * weight + entries, weight + wide + entries, (4.0, 3.0), kept, weight + wide)
        yield at.product("output", at.tokens, at.n, at.k, computed_bytes=0.0, in_base=True)


@register("shira", label="SHiRA", settings=("lora",), rank=32)
def shira(model: ModelShape, options: AdapterOptions) -> Trained:
    """As many entries as low-rank adapters of the rank would have."""
    return on_weights(model, options, Sparse(options.lora_rank))


@register("supertuning", label="Super-Tuning", settings=("lora",), aliases=("super-tuning",))
def supertuning(model: ModelShape, options: AdapterOptions) -> Trained:
    """The largest entries of each weight."""
    return on_weights(model, options, Sparse(share=1.0 - SPARSITY))
