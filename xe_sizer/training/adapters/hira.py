"""HiRA: a low-rank matrix times the weight, element by element (Huang et al. 2025, ICLR, openreview TwJrTz9cRS)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.low_rank import Factors
from xe_sizer.training.adapters.adapter import register
from xe_sizer.training.adapters.on_weights import on_weights

if TYPE_CHECKING:
    from xe_sizer.graph.adapters import Place
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.graph.operators import Operator
    from xe_sizer.training.adapters.adapter import AdapterOptions, Trained


@frozen(eq=True)
class Modulated(Factors):
    """D = W * (B A), x D^T beside x W^T: elements = r (k + n). D's gradient is multiplied with W on its way to B A.

    Source: peft (tuners/hira/layer.py, Linear.forward).
    """

    def operators(self, at: Place) -> Iterator[Operator]:
        """B A, its product with the weight, and the tokens times that."""
        weight, base = at.n * at.k * at.size, at.n * at.k * at.element_bytes
        yield at.product("B A", at.n, at.k, self.rank)
        yield at.kernels("made", 2.0 * weight + base, 2.0 * weight + base, (1.0, 1.0), temporary_bytes=2.0 * weight)
        yield from at.delta()


@register("hira", label="HiRA", settings=("lora",), rank=32)
def hira(model: ModelShape, options: AdapterOptions) -> Trained:
    """Of high rank, as the weight is, from as much as LoRA learns."""
    return on_weights(model, options, Modulated(options.lora_rank))
