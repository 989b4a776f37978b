"""LoHa: the element-wise product of two low-rank matrices (Hyeon-Woo et al. 2021, arXiv:2108.06098; LyCORIS)."""

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
class Hadamard(AdapterForm):
    """D = (B1 A1) * (B2 A2), x D^T beside x W^T: elements = 2 r (k + n).

    D is made in every forward from two products of 2 n k r FLOPs; the backward makes both again and multiplies each
    with D's gradient, of which two and a factor stand beside each other.
    Source: peft (tuners/loha/layer.py, HadaWeight).
    """

    rank: int

    tensors = 4

    def elements(self, n: Size, k: Size) -> Size:
        """Two pairs of factors [-]."""
        return 2 * self.rank * (k + n)

    def operators(self, at: Place) -> Iterator[Operator]:
        """Both factors' products, their element-wise one, and the tokens times it."""
        one, weight = at.block.inputs.rank.ones, at.n * at.k * at.size
        yield at.product("factors", at.n, at.k, self.rank * one, copies=2.0)
        yield at.kernels("made", 5.0 * weight, 10.0 * weight, (2.0, 3.0), temporary_bytes=4.0 * weight)
        yield from at.delta()


@register("loha", label="LoHa", settings=("lora",))
def loha(model: ModelShape, options: AdapterOptions) -> Trained:
    """A matrix as large as the weight, of rank up to the square of what learns."""
    return on_weights(model, options, Hadamard(options.lora_rank))
