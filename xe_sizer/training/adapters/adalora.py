"""AdaLoRA: low-rank adapters whose ranks are given out anew in training (Zhang et al. 2023, arXiv:2303.10512)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.low_rank import Factors
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place, Size
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained

START = 1.5  # published: the ranks that training starts with, over those that it ends with


@frozen(eq=True)
class Singular(Factors):
    """x (E A)^T B^T beside x W^T, E a diagonal: elements = r (k + n + 1).

    E times A is a product of r k elements; the output is divided by the number of ranks, whose division is kept.
    Source: peft (tuners/adalora/layer.py, SVDLinear.forward).
    """

    tensors = 3

    def elements(self, n: Size, k: Size) -> Size:
        """A, B and E, a vector [-]."""
        return super().elements(n, k) + self.rank

    def operators(self, at: Place) -> Iterator[Operator]:
        """Those of a low-rank adapter, and the division: 12 passes over the outputs in its backward."""
        yield from at.chain(self.rank)
        outputs, factor = at.tokens * at.n * at.size, self.rank * at.k * at.size
        forward, backward = 2.0 * outputs + 2.0 * factor, 12.0 * outputs + 5.0 * factor
        yield at.kernels("division", forward, backward, (3.0, 9.0), outputs + factor, 2.0 * outputs)
        yield at.sum()


@register("adalora", label="AdaLoRA", settings=("lora",), rank=8)
def adalora(model: ModelShape, options: AdapterOptions) -> Trained:
    """The rank is that of the end; training starts, and is largest, at 1.5 times it."""
    return on_weights(model, options, Singular(round(START * options.lora_rank)))
