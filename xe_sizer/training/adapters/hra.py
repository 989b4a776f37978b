"""HRA: weights behind a chain of Householder reflections (Yuan et al. 2024, arXiv:2405.17484)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.adapters import AdapterForm
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@frozen(eq=True)
class Reflections(AdapterForm):
    """x (W H_1 ... H_r)^T, H_i = I - 2 u_i u_i^T: elements = r k.

    Every reflection is a product of the k by k matrix with a vector, an outer product and a sum, 6 passes over k^2
    elements, and keeps the matrix, as does the identity that the chain starts from; then W is turned, and both forms
    of it are kept in float32. The weight's own product is left out.
    Source: peft (tuners/hra/layer.py, get_delta_weight and Linear.forward).
    """

    rank: int

    tensors = 1
    replaces = True

    def elements(self, n: Size, k: Size) -> Size:
        """Vectors [-]."""
        return self.rank * k

    def operators(self, at: Place) -> Iterator[Operator]:
        """The chain, the turned weight, and the tokens times it in float32."""
        square, weight = at.k * at.k * at.size, at.n * at.k * at.size
        launches = (4.0 * self.rank, 8.0 * self.rank)
        kept = (self.rank + 1.0) * square + weight
        yield at.kernels(
            "reflections", 6.0 * self.rank * square, 14.0 * self.rank * square, launches, kept, 3.0 * square
        )
        yield at.product("turned", at.n, at.k, at.k, computed_bytes=0.0)
        read = at.tokens * (at.n + at.k) * (at.size + at.element_bytes)
        yield at.kernels("casts", read + weight, read, (3.0, 2.0), temporary_bytes=at.tokens * at.n * at.size)
        yield at.product("output", at.tokens, at.n, at.k, at.input_bytes, computed_bytes=weight)


@register("hra", label="HRA", settings=("lora",), rank=8)
def hra(model: ModelShape, options: AdapterOptions) -> Trained:
    """A chain of as many reflections as the rank."""
    return on_weights(model, options, Reflections(options.lora_rank))
