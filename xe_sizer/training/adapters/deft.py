"""DEFT: takes a low-rank part out of the output and puts another in its place (DEFT of peft 0.21)."""

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
class Replaced(Factors):
    """y - y P P^T + x R^T P^T: P is n by r, R r by k: elements = r (k + n). The output and both latents are kept.

    Source: peft (tuners/deft/layer.py, Linear.forward).
    """

    def operators(self, at: Place) -> Iterator[Operator]:
        """The output onto P and back, the input onto R and over P, a difference and a sum."""
        latent, outputs = at.tokens * self.rank * at.size, at.tokens * at.n * at.size
        yield at.product("onto P", at.tokens, self.rank, at.n, outputs)
        yield at.product("from P", at.tokens, at.n, self.rank, latent)
        yield from at.chain(self.rank)
        yield at.kernels("difference", 4.0 * outputs, 4.0 * outputs, (2.0, 3.0), 0.0, 3.0 * outputs)
        yield at.sum()


@register("deft", label="DEFT", settings=("lora",), rank=8)
def deft(model: ModelShape, options: AdapterOptions) -> Trained:
    """A direction in, a direction out."""
    return on_weights(model, options, Replaced(options.lora_rank))
