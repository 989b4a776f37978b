"""PEANuT: updates that a small network computes from the weights (Zhong et al. 2024, arXiv:2410.01870)."""

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
class FromWeight(AdapterForm):
    """D^T = relu(W^T A) B, x D^T beside x W^T: A n by r, B r by n: elements = 2 r n. A copy of W is kept.

    Source: peft (tuners/peanut/layer.py, Linear.forward).
    """

    rank: int

    def elements(self, n: Size, k: Size) -> Size:
        """A and B [-]."""
        return 2 * self.rank * n

    def matrices(self, n: int, k: int) -> tuple[tuple[int, int], ...]:
        """A and B [-]."""
        return ((self.rank, n), (n, self.rank))

    def operators(self, at: Place) -> Iterator[Operator]:
        """The weight's copy, two products that make D, and the tokens times it."""
        wide, latent = at.n * at.k * at.size, at.k * self.rank * at.size
        read = wide + at.n * at.k * at.element_bytes
        yield at.kernels("copy", read, 0.0, (1.0, 0.0), wide)
        yield at.product("A", at.k, self.rank, at.n, latent)
        yield at.product("B", at.k, at.n, self.rank)
        yield at.kernels("made", 2.0 * wide + 2.0 * latent, 2.0 * wide + 3.0 * latent, (2.0, 2.0), 0.0, 2.0 * wide)
        yield from at.delta()


@register("peanut", label="PEANuT", settings=("lora",), rank=32)
def peanut(model: ModelShape, options: AdapterOptions) -> Trained:
    """A network of one hidden layer over each weight."""
    return on_weights(model, options, FromWeight(options.lora_rank))
