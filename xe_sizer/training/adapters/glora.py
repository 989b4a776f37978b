"""GLoRA: a weight that is scaled and shifted by low-rank matrices (Chavan et al. 2023, arXiv:2306.07967)."""

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
class Generalised(AdapterForm):
    """x (W + W * (B1 A1) + B2 A2)^T, less x W^T: elements = 2 r (k + n). Made in the type of the model, and kept.

    The weight's own product runs beside it, for the difference.
    Source: peft (tuners/glora/layer.py, GLoraLinear.forward; A and B low-rank, C, D and E none).
    """

    rank: int

    tensors = 4
    shares_input = True

    def elements(self, n: Size, k: Size) -> Size:
        """Two pairs of factors [-]."""
        return 2 * self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both products of factors, what is made of them and the weight, and the tokens times that."""
        weight, wide = at.n * at.k * at.element_bytes, at.n * at.k * at.size
        yield at.product("factors", at.n, at.k, self.rank, copies=2.0)
        moved = 2.0 * (wide + weight) + 9.0 * weight
        yield at.kernels("made", moved, 3.0 * weight + 2.0 * (wide + weight), (5.0, 3.0), 0.0, 2.0 * weight + wide)
        yield at.product("output", at.tokens, at.n, at.k, computed_bytes=weight, in_base=True)
        outputs = at.tokens * at.n * at.element_bytes
        yield at.kernels("difference", 8.0 * outputs, 7.0 * outputs, (3.0, 3.0), 0.0, 2.0 * outputs)


@register("glora", label="GLoRA", settings=("lora",), rank=8)
def glora(model: ModelShape, options: AdapterOptions) -> Trained:
    """Low-rank scales and shifts of each weight."""
    return on_weights(model, options, Generalised(options.lora_rank))
