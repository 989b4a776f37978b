"""DeLoRA: low-rank adapters of a bounded norm (Bini et al. 2025, arXiv:2503.18225)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.low_rank import Factors
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@frozen(eq=True)
class Bounded(Factors):
    """(x * w) A^T D B^T beside x W^T: D divides by the norms of A's rows and B's columns: elements = r (k + n) + 1.

    w, the norms of W's columns, does not learn. The latent is kept before D and behind it.
    Source: peft (tuners/delora/layer.py, Linear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """A, B and the bound [-]."""
        return super().elements(n, k) + 1

    def buffer_bytes(self, n: Size, k: Size) -> Size:
        """Norms of the weight's columns [bytes]."""
        return FLOAT32 * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """The scaled input, two products, the norms of both matrices, and the sum."""
        yield from at.chain(self.rank)
        latent, factors = at.tokens * self.rank * at.size, self.rank * (at.n + at.k) * at.size
        inputs = at.tokens * at.k * at.size
        yield at.kernels(
            "bound",
            2.0 * latent + factors,
            6.0 * latent + 8.0 * factors + 2.0 * inputs,
            (9.0, 26.0),
            latent,
            2.0 * inputs,
        )
        yield at.sum()


@register("delora", label="DeLoRA", settings=("lora",), rank=8)
def delora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Angles and strength of the update learn apart."""
    return on_weights(model, options, Bounded(options.lora_rank))
